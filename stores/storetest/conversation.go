package storetest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func testHeads(t *testing.T, open Open) {
	head := func(f *fixture, c mailbox.Conversation) (string, uint64) {
		f.t.Helper()
		data, revision, err := f.Store.Head(f.ctx, c)
		require.NoError(f.t, err)
		return string(data), revision
	}
	set := func(f *fixture, revision uint64, data string, durable bool) {
		f.t.Helper()
		require.NoError(f.t, f.Store.CompareAndSetHead(f.ctx, conversation, revision, []byte(data), durable))
	}
	pending := func(f *fixture) (out []mailbox.Conversation) {
		f.t.Helper()
		require.NoError(f.t, f.Store.PendingHeads(f.ctx, func(c mailbox.Conversation) bool {
			out = append(out, c)
			return true
		}))
		return out
	}
	other := mailbox.Conversation{Tenant: tenant, ID: "conversation2"}
	clause(t, open, "NewConversationHasRevisionZero", func(f *fixture) {
		data, revision, err := f.Store.Head(f.ctx, conversation)
		require.NoError(f.t, err)
		require.Empty(f.t, data)
		require.Zero(f.t, revision)
	})
	clause(t, open, "CompareAndSetFromTheStoredRevision", func(f *fixture) {
		set(f, 0, "a", true)
		set(f, 1, "b", false)
		for _, wrong := range []uint64{0, 1, 3} {
			require.ErrorIs(f.t, f.Store.CompareAndSetHead(f.ctx, conversation, wrong, []byte("x"), true), mailbox.ErrHeadMoved)
		}
		data, revision := head(f, conversation)
		require.Equal(f.t, "b", data)
		require.EqualValues(f.t, 2, revision)
		_, revision = head(f, other)
		require.Zero(f.t, revision)
		f.reopen()
		data, revision = head(f, conversation)
		require.Equal(f.t, "b", data)
		require.EqualValues(f.t, 2, revision)
	})
	clause(t, open, "OneOfManyWritersWins", func(f *fixture) {
		const rounds, writers = 10, 4
		for round := range uint64(rounds) {
			var wg sync.WaitGroup
			errs := make([]error, writers)
			for i := range errs {
				wg.Go(func() {
					errs[i] = f.Store.CompareAndSetHead(f.ctx, conversation, round, fmt.Appendf(nil, "%d/%d", round, i), true)
				})
			}
			wg.Wait()
			won := 0
			for i, err := range errs {
				if err == nil {
					won++
					data, _ := head(f, conversation)
					require.Equal(f.t, fmt.Sprintf("%d/%d", round, i), data)
				} else {
					require.ErrorIs(f.t, err, mailbox.ErrHeadMoved)
				}
			}
			require.Equal(f.t, 1, won)
		}
	})
	clause(t, open, "DurableWhenItReturns", func(f *fixture) {
		set(f, 0, "a", false)
		set(f, 1, "b", true)
		f.crash()
		data, revision := head(f, conversation)
		require.Equal(f.t, "b", data)
		require.EqualValues(f.t, 2, revision)
	})
	clause(t, open, "OtherwiseAtTheLatestBeforeALaterDurableWrite", func(f *fixture) {
		set(f, 0, "a", true)
		set(f, 1, "cleared", false)
		require.NoError(f.t, f.Store.CompareAndSetHead(f.ctx, other, 0, []byte("later"), true))
		f.crash()
		data, _ := head(f, conversation)
		require.Equal(f.t, "cleared", data)
	})
	clause(t, open, "EveryPendingHeadIsNamed", func(f *fixture) {
		require.Empty(f.t, pending(f))
		set(f, 0, "pending", true)
		require.NoError(f.t, f.Store.CompareAndSetHead(f.ctx, other, 0, []byte("pending too"), true))
		require.ElementsMatch(f.t, []mailbox.Conversation{conversation, other}, pending(f))
		set(f, 1, "cleared", false)
		require.Contains(f.t, pending(f), other)
		set(f, 2, "pending again", true)
		for range 2 {
			require.ElementsMatch(f.t, []mailbox.Conversation{conversation, other}, pending(f))
			f.reopen()
		}
		n := 0
		require.NoError(f.t, f.Store.PendingHeads(f.ctx, func(mailbox.Conversation) bool { n++; return false }))
		require.Equal(f.t, 1, n, "it stops when it is told to")
	})
	clause(t, open, "PendingHeadIsNamedAfterACrash", func(f *fixture) {
		set(f, 0, "pending", true)
		set(f, 1, "cleared", false)
		f.crash()
		if data, _ := head(f, conversation); data == "pending" {
			require.Equal(f.t, []mailbox.Conversation{conversation}, pending(f), "the clearing was lost, the mark with it")
		}
	})
	clause(t, open, "CommittedRowIsWrittenOnce", func(f *fixture) {
		_, err := f.Store.Committed(f.ctx, conversation, "s", "m")
		require.ErrorIs(f.t, err, mailbox.ErrNotFound)
		require.NoError(f.t, f.Store.PutCommitted(f.ctx, conversation, "s", "m", []byte("row")))
		require.NoError(f.t, f.Store.PutCommitted(f.ctx, conversation, "s", "m", []byte("row")))
		for range 2 {
			got, err := f.Store.Committed(f.ctx, conversation, "s", "m")
			require.NoError(f.t, err)
			require.Equal(f.t, "row", string(got))
			f.reopen()
		}
	})
	clause(t, open, "CommittedRowsOfOtherSendersAndMessagesAreSeparate", func(f *fixture) {
		keys := [][2]string{{"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"", "abc"}, {"a\x00", "b"}, {"a", "\x00b"}, {"a\x00\xff", "b"}}
		for i, k := range keys {
			require.NoError(f.t, f.Store.PutCommitted(f.ctx, conversation, k[0], k[1], []byte{byte(i)}))
		}
		for i, k := range keys {
			got, err := f.Store.Committed(f.ctx, conversation, k[0], k[1])
			require.NoError(f.t, err)
			require.Equal(f.t, []byte{byte(i)}, got)
			_, err = f.Store.Committed(f.ctx, other, k[0], k[1])
			require.ErrorIs(f.t, err, mailbox.ErrNotFound)
		}
	})
	clause(t, open, "CommittedRowIsDurableBeforeTheClearThatFollows", func(f *fixture) {
		set(f, 0, "pending", true)
		require.NoError(f.t, f.Store.PutCommitted(f.ctx, conversation, "s", "m", []byte("row")))
		set(f, 1, "cleared", false)
		require.NoError(f.t, f.Store.CompareAndSetHead(f.ctx, other, 0, []byte("later"), true))
		f.crash()
		data, _ := head(f, conversation)
		require.Equal(f.t, "cleared", data)
		_, err := f.Store.Committed(f.ctx, conversation, "s", "m")
		require.NoError(f.t, err)
	})
	clause(t, open, "InvalidIdsAreRefused", func(f *fixture) {
		bad := mailbox.Conversation{Tenant: tenant, ID: "a\x00b"}
		require.ErrorIs(f.t, f.Store.CompareAndSetHead(f.ctx, bad, 0, nil, true), mailbox.ErrInvalidID)
		_, _, err := f.Store.Head(f.ctx, bad)
		require.ErrorIs(f.t, err, mailbox.ErrInvalidID)
	})
}

func testMembership(t *testing.T, open Open) {
	g := mailbox.Group{Tenant: tenant, ID: "group"}
	version := func(generation, v uint64) mailbox.GroupVersion {
		return mailbox.GroupVersion{Group: g, Generation: generation, Version: v}
	}
	write := func(v mailbox.GroupVersion) mailbox.VersionWrite {
		return mailbox.VersionWrite{
			GroupVersion: v,
			Manifest:     fmt.Appendf(nil, "manifest %d/%d", v.Generation, v.Version),
			Bitmaps:      map[mailbox.Shard][]byte{0: fmt.Appendf(nil, "bitmap 0 of %d", v.Version), 3: bytes.Repeat([]byte{7}, 300<<10)},
		}
	}
	directory := func(f *fixture, generation uint64, n mailbox.Shard, from uint32) (out []mailbox.DirectoryRow) {
		f.t.Helper()
		require.NoError(f.t, f.Store.Directory(f.ctx, g, generation, n, from, func(r mailbox.DirectoryRow) bool {
			out = append(out, r)
			return true
		}))
		return out
	}
	clause(t, open, "VersionIsDurableWithAllItRefersTo", func(f *fixture) {
		w := write(version(1, 5))
		w.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{0: {{Slot: 9, User: "u", JoinSeq: 44}}}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w))
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w), "written again")
		f.crash()
		m, err := f.Store.VersionManifest(f.ctx, w.GroupVersion)
		require.NoError(f.t, err)
		require.Equal(f.t, w.Manifest, m)
		for n, want := range w.Bitmaps {
			got, err := f.Store.VersionBitmap(f.ctx, w.GroupVersion, n)
			require.NoError(f.t, err)
			require.Equal(f.t, want, got)
		}
		require.Equal(f.t, w.Directory[0], directory(f, 1, 0, 0))
	})
	clause(t, open, "WhatAVersionDidNotWriteIsNotFound", func(f *fixture) {
		require.NoError(f.t, f.Store.PutVersion(f.ctx, write(version(1, 5))))
		for _, v := range []mailbox.GroupVersion{version(1, 4), version(2, 5), {Group: mailbox.Group{Tenant: tenant, ID: "g"}, Generation: 1, Version: 5}} {
			_, err := f.Store.VersionManifest(f.ctx, v)
			require.ErrorIs(f.t, err, mailbox.ErrNotFound)
		}
		_, err := f.Store.VersionBitmap(f.ctx, version(1, 5), 1)
		require.ErrorIs(f.t, err, mailbox.ErrNotFound)
	})
	clause(t, open, "DirectoryIsInSlotOrderPerGenerationAndShard", func(f *fixture) {
		w := write(version(1, 1))
		w.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{
			0: {{Slot: 300, User: "c", JoinSeq: 1}, {Slot: 2, User: "a", JoinSeq: 1}, {Slot: 70000, User: "d", JoinSeq: 1}},
			1: {{Slot: 5, User: "b", JoinSeq: 1}},
		}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w))
		next := write(version(1, 2))
		next.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{0: {{Slot: 70001, User: "a", JoinSeq: 9}}}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, next))
		all := []mailbox.DirectoryRow{{Slot: 2, User: "a", JoinSeq: 1}, {Slot: 300, User: "c", JoinSeq: 1}, {Slot: 70000, User: "d", JoinSeq: 1}, {Slot: 70001, User: "a", JoinSeq: 9}}
		require.Equal(f.t, all, directory(f, 1, 0, 0))
		require.Equal(f.t, all[1:], directory(f, 1, 0, 3))
		require.Equal(f.t, w.Directory[1], directory(f, 1, 1, 0))
		require.Empty(f.t, directory(f, 2, 0, 0), "another generation")
		n := 0
		require.NoError(f.t, f.Store.Directory(f.ctx, g, 1, 0, 0, func(mailbox.DirectoryRow) bool { n++; return n < 2 }))
		require.Equal(f.t, 2, n)
	})
	clause(t, open, "LatestSlotIsTheLargestInTheOrderAsked", func(f *fixture) {
		w := write(version(1, 1))
		w.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{0: {{Slot: 8, User: "a", JoinSeq: 5}, {Slot: 9, User: "b", JoinSeq: 5}}}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w))
		rejoin := write(version(1, 3))
		rejoin.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{0: {{Slot: 300, User: "a", JoinSeq: 7}}}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, rejoin))
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w), "an older change written again takes nothing back")
		for range 2 {
			got, err := f.Store.LatestSlots(f.ctx, g, 1, []string{"b", "never", "a"})
			require.NoError(f.t, err)
			require.Equal(f.t, []mailbox.DirectoryRow{{Slot: 9, User: "b", JoinSeq: 5}, {}, {Slot: 300, User: "a", JoinSeq: 7}}, got)
			f.reopen()
		}
		got, err := f.Store.LatestSlots(f.ctx, g, 2, []string{"a"})
		require.NoError(f.t, err)
		require.Equal(f.t, []mailbox.DirectoryRow{{}}, got, "another generation")
	})
	clause(t, open, "ImportOfManyMembersIsOneVersion", func(f *fixture) {
		w := write(version(1, 1))
		w.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{}
		for i := range uint32(f.fewer(20_000, 2_000)) {
			n := mailbox.Shard(i % shards)
			w.Directory[n] = append(w.Directory[n], mailbox.DirectoryRow{Slot: i + 1, User: fmt.Sprint("user", i), JoinSeq: 1})
		}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w))
		for n := range mailbox.Shard(shards) {
			require.Equal(f.t, w.Directory[n], directory(f, 1, n, 0))
		}
	})
}
