package storetest

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func testAppend(t *testing.T, open Open) {
	clause(t, open, "GroupVisibleWholeOrNotAtAll", func(f *fixture) {
		const groups = 60
		var chunks []mailbox.ChunkAppend
		for i := range int64(groups) {
			chunks = append(chunks, f.chunk("u", seq(i), Start, four))
		}
		done := make(chan error, 1)
		go func() {
			for i := range chunks {
				for _, r := range f.Store.AppendBatch(f.ctx, chunks[i:i+1]) {
					if r.Err != nil {
						done <- r.Err
						return
					}
				}
			}
			done <- nil
		}()
		for running := true; running; {
			select {
			case err := <-done:
				require.NoError(f.t, err)
				running = false
			default:
			}
			p := f.page("u", 0, seq(groups))
			require.Zero(f.t, len(p.Entries)%len(four), "a page holds a part of a group")
			for i, e := range p.Entries {
				require.Equal(f.t, mailbox.EventType(i%4), e.EventType)
				require.Equal(f.t, p.Entries[i-i%4].Seq, e.Seq)
			}
		}
		require.Len(f.t, f.page("u", 0, seq(groups)).Entries, groups*len(four))
	})
	clause(t, open, "RepeatingItChangesNothing", func(f *fixture) {
		c := f.chunk("u", seq(3), Start, four)
		f.append(c)
		want := f.page("u", 0, seq(9))
		f.append(c)
		f.append(c, c)
		require.Equal(f.t, want, f.page("u", 0, seq(9)))
		f.reopen()
		f.append(c)
		require.Equal(f.t, want, f.page("u", 0, seq(9)))
	})
	clause(t, open, "ReceiptSaysItIsDurable", func(f *fixture) {
		f.put("u", 1, four)
		f.crash()
		require.Len(f.t, f.page("u", 0, seq(9)).Entries, 4)
	})
	clause(t, open, "EntriesAreTheTemplatesBytes", func(f *fixture) {
		c := f.chunk("u", seq(5), Start, four)
		f.append(c)
		for i, e := range f.page("u", 0, seq(9)).Entries {
			require.Equal(f.t, c.Template.Entry(i, "u"), e)
			b, err := mailbox.EncodeEntry(e)
			require.NoError(f.t, err)
			require.True(f.t, bytes.Equal(c.Template.AppendEntry(nil, i, "u"), b))
		}
	})
	clause(t, open, "RecipientsGetTheirOwnEvents", func(f *fixture) {
		users := sameLane(f.t, 3)
		c := f.chunk(users[0], seq(1), Start, four)
		c.Recipients = []mailbox.Recipient{{User: users[0], Events: 0b0001}, {User: users[1], Events: 0b1010}, {User: users[2], Events: 0b1111}}
		f.append(c)
		for i, want := range [][]mailbox.EventType{{0}, {1, 3}, {0, 1, 2, 3}} {
			var got []mailbox.EventType
			for _, e := range f.page(users[i], 0, seq(9)).Entries {
				require.Equal(f.t, users[i], e.UserID)
				got = append(got, e.EventType)
			}
			require.Equal(f.t, want, got)
		}
	})
	clause(t, open, "ResultsArePerItemAndInOrder", func(f *fixture) {
		var chunks []mailbox.ChunkAppend
		for i := range int64(20) {
			chunks = append(chunks, f.chunk("u", seq(i), Start, one))
		}
		f.append(chunks...) // compares each receipt with its item
		require.Len(f.t, f.page("u", 0, seq(99)).Entries, 20)
		require.Empty(f.t, f.Store.AppendBatch(f.ctx, nil))
	})
	clause(t, open, "BatchIsItsItemsOneByOne", func(f *fixture) {
		// One user's groups on three days, one of them expired, between others'.
		var batch []mailbox.ChunkAppend
		for i, age := range []time.Duration{0, 2 * day, 20 * day, day, 0} {
			for _, id := range []string{"u", "v"} {
				batch = append(batch, f.chunk(id, seq(int64(i+1)), Start.Add(-age), four))
			}
		}
		f.append(batch...)
		got := []mailbox.Page{f.page("u", seq(3), seq(99)), f.page("v", seq(3), seq(99))}
		single := newFixture(f.t, open, retention)
		for _, c := range batch {
			single.append(c)
		}
		for i, id := range []string{"u", "v"} {
			require.Equal(f.t, single.page(id, seq(3), seq(99)), got[i])
			require.Len(f.t, got[i].Entries, 8)
		}
	})
	clause(t, open, "SameGroupAppendedByManyAtOnceIsOne", func(f *fixture) {
		var chunks []mailbox.ChunkAppend
		for o := range int64(8) {
			chunks = append(chunks, f.chunk("u", seq(o+1), Start.Add(-day*time.Duration(o%2)), four))
		}
		var wg sync.WaitGroup
		results := make([][]mailbox.AppendResult, 6)
		for i := range results {
			wg.Go(func() { results[i] = f.Store.AppendBatch(f.ctx, chunks) })
		}
		wg.Wait()
		for _, rs := range results {
			for _, r := range rs {
				require.NoError(f.t, r.Err)
			}
		}
		require.Len(f.t, f.page("u", 0, seq(99)).Entries, 32)
	})
	clause(t, open, "LargestChunk", func(f *fixture) {
		users := sameLane(f.t, mailbox.ChunkEntries)
		c := f.chunk(users[0], seq(1), Start, one)
		c.Recipients = nil
		for _, id := range users {
			c.Recipients = append(c.Recipients, mailbox.Recipient{User: id, Events: 1})
		}
		f.append(c)
		f.append(c)
		for i := 0; i < len(users); i += 97 {
			require.Equal(f.t, []int64{1}, offsets(f.page(users[i], 0, seq(9))))
		}
		require.Equal(f.t, []int64{1}, offsets(f.page(users[len(users)-1], 0, seq(9))))
	})
	clause(t, open, "InvalidItemFailsAlone", func(f *fixture) {
		good, bad := f.chunk("u", seq(1), Start, one), f.chunk("u", seq(2), Start, one)
		last := f.chunk("u", seq(3), Start, one)
		bad.Ref.Seq = seq(7) // not its template's
		r := f.Store.AppendBatch(f.ctx, []mailbox.ChunkAppend{good, bad, last})
		require.NoError(f.t, r[0].Err)
		require.ErrorIs(f.t, r[1].Err, mailbox.ErrInvalidEntry)
		require.NoError(f.t, r[2].Err)
		require.Equal(f.t, []int64{1, 3}, offsets(f.page("u", 0, seq(9))))
	})
	clause(t, open, "InvalidItemsAreRefused", func(f *fixture) {
		change := func(alter func(c *mailbox.ChunkAppend)) mailbox.ChunkAppend {
			c := f.chunk("u", seq(1), Start, one)
			alter(&c)
			return c
		}
		for name, c := range map[string]mailbox.ChunkAppend{
			"no template":    change(func(c *mailbox.ChunkAppend) { c.Template = nil }),
			"other dispatch": change(func(c *mailbox.ChunkAppend) { c.Ref.Dispatch[0]++ }),
			"unknown shard":  change(func(c *mailbox.ChunkAppend) { c.Ref.Shard = shards }),
			"another lane":   change(func(c *mailbox.ChunkAppend) { c.Ref.Lane = (c.Ref.Lane + 1) % mailbox.LaneCount }),
			"another shard":  change(func(c *mailbox.ChunkAppend) { c.Ref.Shard = (c.Ref.Shard + 1) % shards }),
			"no events":      change(func(c *mailbox.ChunkAppend) { c.Recipients[0].Events = 0 }),
			"unknown event":  change(func(c *mailbox.ChunkAppend) { c.Recipients[0].Events = 2 }),
			"empty user":     change(func(c *mailbox.ChunkAppend) { c.Recipients[0].User = "" }),
			"control characters": change(func(c *mailbox.ChunkAppend) {
				c.Recipients = append(c.Recipients, mailbox.Recipient{User: "u\x00", Events: 1})
			}),
			"seq 0": change(func(c *mailbox.ChunkAppend) {
				c.Ref.Seq, c.Ref.Dispatch, c.Template = 0, dispatchAt(0), template(f.t, 0, Start, one)
			}),
		} {
			require.Error(f.t, f.Store.AppendBatch(f.ctx, []mailbox.ChunkAppend{c})[0].Err, name)
		}
		require.Empty(f.t, f.page("u", 0, seq(9)).Entries)
	})
	clause(t, open, "GroupOverTheLimitsIsRefused", func(f *fixture) {
		// 4 entries of 1 KiB payload stay below 8 KiB; long shared ids do not
		// change that, so the limit is reached by a template that repeats nothing.
		big := make([]mailbox.Event, 4)
		for i := range big {
			big[i] = mailbox.Event{Type: mailbox.EventType(i), Payload: bytes.Repeat([]byte{1}, mailbox.MaxPayloadBytes)}
		}
		s := seq(1)
		tp, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
			TenantID: tenant, Seq: s, DispatchID: dispatchAt(s), ConversationID: conversation.ID,
			MessageID: strings.Repeat("m", 1500), SenderID: "sender", CreatedAt: Start.UnixMilli(),
		}, big)
		require.NoError(f.t, err)
		over := f.chunk("u", s, Start, one)
		over.Template, over.Recipients[0].Events = tp, 0b1111
		fits := f.chunk("u", s, Start, one)
		fits.Template, fits.Recipients = tp, []mailbox.Recipient{{User: "u", Events: 0b0011}}
		r := f.Store.AppendBatch(f.ctx, []mailbox.ChunkAppend{over, f.chunk("v", s, Start, one)})
		require.ErrorIs(f.t, r[0].Err, mailbox.ErrGroupTooLarge)
		require.NoError(f.t, r[1].Err)
		require.Empty(f.t, f.page("u", 0, seq(9)).Entries)
		f.append(fits)
		require.Len(f.t, f.page("u", 0, seq(9)).Entries, 2)
	})
	clause(t, open, "ChunkWithoutRecipientsIsDurable", func(f *fixture) {
		c := f.chunk("u", seq(1), Start, one)
		c.Recipients = nil
		f.append(c)
		require.Empty(f.t, f.page("u", 0, seq(9)).Entries)
	})
	clause(t, open, "EndedContextAppendsNothing", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		require.ErrorIs(f.t, f.Store.AppendBatch(ctx, []mailbox.ChunkAppend{f.chunk("u", seq(1), Start, one)})[0].Err, context.Canceled)
		require.Empty(f.t, f.page("u", 0, seq(9)).Entries)
	})
}

// sameLane returns n users of one shard and lane.
func sameLane(t *testing.T, n int) []string {
	t.Helper()
	want := mailbox.Place(user("u0"), shards)
	var out []string
	for i := 0; len(out) < n; i++ {
		id := "u" + itoa(i)
		if mailbox.Place(user(id), shards) == want {
			out = append(out, id)
		}
	}
	return out
}
