package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// lanes builds the lanes of a manifest from pairs of lane and chunk count.
func lanes(pairs ...int) []mailbox.LaneChunks {
	var out []mailbox.LaneChunks
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, mailbox.LaneChunks{Lane: mailbox.Lane(pairs[i]), Users: 10 * pairs[i+1], Chunks: pairs[i+1]})
	}
	return out
}

// progressOf is the progress of the dispatch at s with the given lanes.
func progressOf(s mailbox.Seq, l []mailbox.LaneChunks) mailbox.DispatchProgress {
	p := mailbox.DispatchProgress{
		Dispatch: dispatchAt(s), Seq: s, PayloadDigest: mailbox.Sum([]byte(s.String())),
		Manifest:   mailbox.Manifest{EntryVersion: mailbox.EntryVersion, ChunkSize: mailbox.ChunkEntries, Audience: mailbox.Sum([]byte("audience")), Lanes: l},
		Record:     []byte("record of " + s.String()),
		LastOffset: s.Offset(), LastSeen: Start.UnixMilli(),
	}
	for _, x := range l {
		p.Manifest.Entries += x.Users
	}
	return p
}

// durable is the receipt of a chunk, made without the append: marking does not
// read entries.
func durable(n mailbox.Shard, p mailbox.DispatchProgress, lane mailbox.Lane, index int) mailbox.Durable {
	return mailbox.NewDurable(mailbox.ChunkRef{Shard: n, Dispatch: p.Dispatch, Seq: p.Seq, Lane: lane, Index: index})
}

func (f *fixture) begin(own mailbox.Ownership, ps ...mailbox.DispatchProgress) {
	f.t.Helper()
	require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Progress: ps}))
}

func (f *fixture) lookup(n mailbox.Shard, id mailbox.DispatchID) *mailbox.DispatchProgress {
	f.t.Helper()
	got, err := f.Store.LookupDispatches(f.ctx, n, []mailbox.DispatchID{id})
	require.NoError(f.t, err)
	require.Len(f.t, got, 1)
	return got[0]
}

// sameProgress compares everything but the marks, whose length is a store's own.
func sameProgress(f *fixture, want mailbox.DispatchProgress, got *mailbox.DispatchProgress) {
	f.t.Helper()
	require.NotNil(f.t, got)
	g := *got
	require.True(f.t, want.Manifest.Equal(&g.Manifest), "manifest: %+v, want %+v", g.Manifest, want.Manifest)
	g.Manifest, want.Manifest = mailbox.Manifest{}, mailbox.Manifest{}
	g.Marks, want.Marks = nil, nil
	require.Equal(f.t, want, g)
}

// nothingBegun checks that a refused Begin wrote neither its other dispatch nor
// the conversation's fence nor the frontier.
func (f *fixture) nothingBegun(n mailbox.Shard, fresh mailbox.DispatchProgress, name string) {
	f.t.Helper()
	require.Nil(f.t, f.lookup(n, fresh.Dispatch), name)
	rows, err := f.Store.LoadFences(f.ctx, n, []mailbox.Conversation{conversation})
	require.NoError(f.t, err)
	require.Empty(f.t, rows, name)
	st, err := f.Store.LoadShard(f.ctx, n)
	require.NoError(f.t, err)
	require.Zero(f.t, st.F, name)
}

func testProgress(t *testing.T, open Open) {
	clause(t, open, "UnknownDispatchesAreNilInTheOrderAsked", func(f *fixture) {
		own := f.own(0, 1)
		a, b := progressOf(seq(1), lanes(0, 1)), progressOf(seq(2), lanes(5, 3, 9, 1))
		f.begin(own, a, b)
		got, err := f.Store.LookupDispatches(f.ctx, 0, []mailbox.DispatchID{dispatchAt(seq(8)), b.Dispatch, dispatchAt(seq(9)), a.Dispatch})
		require.NoError(f.t, err)
		require.Len(f.t, got, 4)
		require.Nil(f.t, got[0])
		require.Nil(f.t, got[2])
		sameProgress(f, b, got[1])
		sameProgress(f, a, got[3])
		require.Nil(f.t, f.lookup(1, a.Dispatch), "another shard")
	})
	clause(t, open, "KeepsTheRecordsOwnBytes", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(0, 1))
		p.Record = []byte{0, 1, 2, 255, 0}
		f.begin(own, p)
		f.reopen()
		sameProgress(f, p, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "BegunAgainTheSameChangesNothing", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		f.begin(own, p)
		_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, p, 3, 1)})
		require.NoError(f.t, err)
		f.begin(own, p)
		f.begin(own, p, p)
		got := f.lookup(0, p.Dispatch)
		sameProgress(f, p, got)
		require.True(f.t, got.Marks.Has(1), "a mark is lost by a repeat")
		f.reopen()
		own = f.takeOver(own, 2)
		f.begin(own, p)
		require.True(f.t, f.lookup(0, p.Dispatch).Marks.Has(1))
	})
	clause(t, open, "OtherManifestIsRefusedAndNothingIsWritten", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		f.begin(own, p)
		for name, alter := range map[string]func(p *mailbox.DispatchProgress){
			"lanes":          func(p *mailbox.DispatchProgress) { p.Manifest.Lanes = lanes(3, 3) },
			"chunk size":     func(p *mailbox.DispatchProgress) { p.Manifest.ChunkSize++ },
			"audience":       func(p *mailbox.DispatchProgress) { p.Manifest.Audience[0]++ },
			"entries":        func(p *mailbox.DispatchProgress) { p.Manifest.Entries++ },
			"entry version":  func(p *mailbox.DispatchProgress) { p.Manifest.EntryVersion++ },
			"payload digest": func(p *mailbox.DispatchProgress) { p.PayloadDigest[0]++ },
		} {
			other := p
			alter(&other)
			fresh := progressOf(seq(50), lanes(1, 1))
			err := f.Store.Begin(f.ctx, own, mailbox.BeginBatch{
				Fences:   []mailbox.FenceRow{{Conversation: conversation, Base: 3}},
				Progress: []mailbox.DispatchProgress{fresh, other},
				Frontier: seq(77),
			})
			require.ErrorIs(f.t, err, mailbox.ErrManifestMismatch, name)
			f.nothingBegun(0, fresh, name)
			_, err = f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, fresh, 1, 0)})
			require.ErrorIs(f.t, err, mailbox.ErrUnknownChunk, name)
		}
		sameProgress(f, p, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "DispatchKnownAtAnotherSeqIsRefusedAndNothingIsWritten", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(5), lanes(3, 2))
		f.begin(own, p)
		unexpanded := func(p *mailbox.DispatchProgress) {
			p.Unexpanded, p.Manifest = true, mailbox.Manifest{}
		}
		for name, alter := range map[string]func(p *mailbox.DispatchProgress){
			"later":              func(p *mailbox.DispatchProgress) { p.Seq = seq(9) },
			"earlier":            func(p *mailbox.DispatchProgress) { p.Seq = seq(2) },
			"of the next epoch":  func(p *mailbox.DispatchProgress) { p.Seq = seqAt(2, 9) },
			"unexpanded":         func(p *mailbox.DispatchProgress) { p.Seq = seq(9); unexpanded(p) },
			"with other content": func(p *mailbox.DispatchProgress) { p.Seq = seq(9); p.Manifest.Entries++ },
		} {
			again := p
			alter(&again)
			fresh := progressOf(seq(50), lanes(1, 1))
			err := f.Store.Begin(f.ctx, own, mailbox.BeginBatch{
				Fences:   []mailbox.FenceRow{{Conversation: conversation, Base: 3}},
				Progress: []mailbox.DispatchProgress{fresh, again},
				Frontier: seq(77),
			})
			require.ErrorIs(f.t, err, mailbox.ErrDispatchKnown, name)
			f.nothingBegun(0, fresh, name)
		}
		sameProgress(f, p, f.lookup(0, p.Dispatch))
		var seqs []mailbox.Seq
		require.NoError(f.t, f.Store.ScanProgress(f.ctx, 0, 0, func(p *mailbox.DispatchProgress) bool {
			seqs = append(seqs, p.Seq)
			return true
		}))
		require.Equal(f.t, []mailbox.Seq{seq(5)}, seqs, "the index by offset names it once")
	})
	clause(t, open, "UnexpandedThenExpanded", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		u := p
		u.Unexpanded, u.Manifest = true, mailbox.Manifest{}
		f.begin(own, u)
		sameProgress(f, u, f.lookup(0, p.Dispatch))
		require.False(f.t, f.lookup(0, p.Dispatch).Complete())
		_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, p, 3, 0)})
		require.ErrorIs(f.t, err, mailbox.ErrUnknownChunk)
		f.begin(own, p)
		sameProgress(f, p, f.lookup(0, p.Dispatch))
		f.begin(own, u)
		sameProgress(f, p, f.lookup(0, p.Dispatch))
		f.reopen()
		sameProgress(f, p, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "UnexpandedAndExpandedInOneBatch", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		u := p
		u.Unexpanded, u.Manifest = true, mailbox.Manifest{}
		f.begin(own, u, p)
		sameProgress(f, p, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "RepeatsRaiseLastOffsetAndLastSeen", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		repeat := func(r mailbox.DispatchRepeat) error {
			return f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Repeats: []mailbox.DispatchRepeat{r}})
		}
		require.ErrorIs(f.t, repeat(mailbox.DispatchRepeat{Dispatch: p.Dispatch, Seq: p.Seq}), mailbox.ErrNotFound)
		f.begin(own, p)
		require.NoError(f.t, repeat(mailbox.DispatchRepeat{Dispatch: p.Dispatch, Seq: p.Seq, Offset: 40, SeenAt: p.LastSeen + 5}))
		require.NoError(f.t, repeat(mailbox.DispatchRepeat{Dispatch: p.Dispatch, Seq: p.Seq, Offset: 30, SeenAt: p.LastSeen + 2}))
		p.LastOffset, p.LastSeen = 40, p.LastSeen+5
		sameProgress(f, p, f.lookup(0, p.Dispatch))
		f.reopen()
		sameProgress(f, p, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "KeptByDefault", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 1))
		f.begin(own, p)
		_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, p, 3, 0)})
		require.NoError(f.t, err)
		f.clock.Add(400 * day)
		if f.Expire != nil {
			require.NoError(f.t, f.Expire())
		}
		f.reopen()
		sameProgress(f, p, f.lookup(0, p.Dispatch))
		require.True(f.t, f.lookup(0, p.Dispatch).Complete())
	})
	clause(t, open, "DispatchForNobodyIsCompleteAtOnce", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), nil)
		f.begin(own, p)
		require.True(f.t, f.lookup(0, p.Dispatch).Complete())
	})
	clause(t, open, "ScannedInLogOrderFromAPositionOn", func(f *fixture) {
		own := f.own(0, 1)
		var all []mailbox.DispatchProgress
		for _, o := range []int64{300, 2, 9, 70000, 1} {
			all = append(all, progressOf(seq(o), lanes(3, 2)))
		}
		all = append(all, progressOf(seqAt(2, 5), lanes(1, 1)))
		f.begin(own, all...)
		_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, all[2], 3, 0), durable(0, all[2], 3, 1), durable(0, all[0], 3, 1)})
		require.NoError(f.t, err)
		scan := func(n mailbox.Shard, after mailbox.Seq, limit int) (out []mailbox.Seq) {
			f.t.Helper()
			require.NoError(f.t, f.Store.ScanProgress(f.ctx, n, after, func(p *mailbox.DispatchProgress) bool {
				out = append(out, p.Seq)
				require.Equal(f.t, "record of "+p.Seq.String(), string(p.Record))
				require.Equal(f.t, p.Seq == seq(9), p.Complete())
				require.Equal(f.t, p.Seq == seq(9) || p.Seq == seq(300), p.Marks.Has(1))
				return len(out) < limit
			}))
			return out
		}
		require.Equal(f.t, []mailbox.Seq{seq(1), seq(2), seq(9), seq(300), seq(70000), seqAt(2, 5)}, scan(0, 0, 99))
		require.Equal(f.t, []mailbox.Seq{seq(300), seq(70000), seqAt(2, 5)}, scan(0, seq(9), 99))
		require.Equal(f.t, []mailbox.Seq{seq(2), seq(9)}, scan(0, seq(1), 2))
		require.Empty(f.t, scan(1, 0, 99), "another shard")
	})
	clause(t, open, "ScanMayCallTheStore", func(f *fixture) {
		own := f.own(0, 1)
		f.begin(own, progressOf(seq(1), lanes(3, 2)), progressOf(seq(2), lanes(3, 2)))
		n := 0
		require.NoError(f.t, f.Store.ScanProgress(f.ctx, 0, 0, func(p *mailbox.DispatchProgress) bool {
			_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, *p, 3, 0)})
			require.NoError(f.t, err)
			n++
			return true
		}))
		require.Equal(f.t, 2, n)
	})
}

func testMarks(t *testing.T, open Open) {
	mark := func(f *fixture, own mailbox.Ownership, ds ...mailbox.Durable) error {
		f.t.Helper()
		marked, err := f.Store.MarkChunks(f.ctx, own, ds)
		if err == nil {
			require.Len(f.t, marked, len(ds))
			for i := range ds {
				require.Equal(f.t, ds[i].Chunk(), marked[i].Chunk())
			}
		}
		return err
	}
	clause(t, open, "ChunksAreCountedThroughTheLanes", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2, 7, 70))
		f.begin(own, p)
		require.NoError(f.t, mark(f, own, durable(0, p, 7, 69)))
		require.NoError(f.t, mark(f, own, durable(0, p, 3, 1), durable(0, p, 3, 1)))
		for range 2 {
			got := f.lookup(0, p.Dispatch)
			for i := range 72 {
				require.Equal(f.t, i == 1 || i == 71, got.Marks.Has(i), "chunk %d", i)
			}
			f.reopen()
		}
	})
	clause(t, open, "AllMarksCompleteTheDispatch", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(0, 1, 63, 2))
		f.begin(own, p)
		for i, d := range []mailbox.Durable{durable(0, p, 63, 1), durable(0, p, 0, 0), durable(0, p, 63, 0)} {
			require.False(f.t, f.lookup(0, p.Dispatch).Complete(), "after %d marks", i)
			require.NoError(f.t, mark(f, own, d))
		}
		require.True(f.t, f.lookup(0, p.Dispatch).Complete())
		require.NoError(f.t, mark(f, own, durable(0, p, 0, 0)), "a repeat")
	})
	clause(t, open, "ChunkThatTheManifestLacksIsRefusedAndNothingIsMarked", func(f *fixture) {
		own := f.own(0, 1)
		p, never := progressOf(seq(1), lanes(3, 2)), progressOf(seq(2), lanes(3, 2))
		f.begin(own, p)
		good := durable(0, p, 3, 0)
		moved := p
		moved.Seq = seq(3)
		for name, bad := range map[string]mailbox.Durable{
			"index":         durable(0, p, 3, 2),
			"negative":      durable(0, p, 3, -1),
			"lane":          durable(0, p, 4, 0),
			"never begun":   durable(0, never, 3, 0),
			"another seq":   durable(0, moved, 3, 0),
			"another shard": durable(1, p, 3, 0),
		} {
			require.ErrorIs(f.t, mark(f, own, good, bad), mailbox.ErrUnknownChunk, name)
			require.False(f.t, f.lookup(0, p.Dispatch).Marks.Has(0), name)
		}
	})
	clause(t, open, "SurviveATakeover", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		f.begin(own, p)
		require.NoError(f.t, mark(f, own, durable(0, p, 3, 0)))
		f.reopen()
		next := f.takeOver(own, 2)
		require.NoError(f.t, mark(f, next, durable(0, p, 3, 1)))
		require.True(f.t, f.lookup(0, p.Dispatch).Complete())
	})
	clause(t, open, "NoneIsDurableWithoutItsBegin", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		f.begin(own, p)
		require.NoError(f.t, mark(f, own, durable(0, p, 3, 0)))
		f.crash()
		if got := f.lookup(0, p.Dispatch); got != nil {
			sameProgress(f, p, got)
		}
		require.NoError(f.t, f.Store.ScanProgress(f.ctx, 0, 0, func(*mailbox.DispatchProgress) bool { return true }))
	})
}

func testFences(t *testing.T, open Open) {
	row := mailbox.FenceRow{Conversation: conversation, Base: 3, Seen: []mailbox.FenceSeen{{Epoch: 5, Offset: 10}, {Epoch: 1 << 60, Offset: mailbox.MaxOffset}}}
	other := mailbox.FenceRow{Conversation: mailbox.Conversation{Tenant: tenant, ID: "other"}, Base: 9}
	unknown := mailbox.Conversation{Tenant: tenant, ID: "conv"}
	clause(t, open, "RowsOfTheConversationsThatHaveOne", func(f *fixture) {
		own := f.own(0, 1)
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Fences: []mailbox.FenceRow{row, other}}))
		for range 2 {
			got, err := f.Store.LoadFences(f.ctx, 0, []mailbox.Conversation{unknown, other.Conversation, row.Conversation})
			require.NoError(f.t, err)
			require.ElementsMatch(f.t, []mailbox.FenceRow{other, row}, got)
			f.reopen()
		}
		got, err := f.Store.LoadFences(f.ctx, 1, []mailbox.Conversation{row.Conversation})
		require.NoError(f.t, err)
		require.Empty(f.t, got, "another shard")
	})
	clause(t, open, "LaterRowReplaces", func(f *fixture) {
		own := f.own(0, 1)
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Fences: []mailbox.FenceRow{row}}))
		next := mailbox.FenceRow{Conversation: conversation, Base: 1 << 61}
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Fences: []mailbox.FenceRow{next}}))
		got, err := f.Store.LoadFences(f.ctx, 0, []mailbox.Conversation{conversation})
		require.NoError(f.t, err)
		require.Equal(f.t, []mailbox.FenceRow{next}, got)
	})
	clause(t, open, "CoordinatorsRowsAreTheirOwnAndDurable", func(f *fixture) {
		own := f.own(0, 1)
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Fences: []mailbox.FenceRow{other}}))
		require.NoError(f.t, f.Store.PutOutboxFences(f.ctx, 3, []mailbox.FenceRow{row}))
		load := func(partition int32) []mailbox.FenceRow {
			f.t.Helper()
			got, err := f.Store.LoadOutboxFences(f.ctx, partition, []mailbox.Conversation{row.Conversation, other.Conversation})
			require.NoError(f.t, err)
			return got
		}
		require.Equal(f.t, []mailbox.FenceRow{row}, load(3))
		require.Empty(f.t, load(0))
		f.crash()
		require.Equal(f.t, []mailbox.FenceRow{row}, load(3))
	})
	clause(t, open, "CoordinatorsRowNeverFalls", func(f *fixture) {
		state := func(base uint64, seen ...mailbox.FenceSeen) mailbox.FenceRow {
			return mailbox.FenceRow{Conversation: conversation, Base: base, Seen: seen}
		}
		put := func(r mailbox.FenceRow) {
			f.t.Helper()
			require.NoError(f.t, f.Store.PutOutboxFences(f.ctx, 3, []mailbox.FenceRow{other, r}))
		}
		stored := func(want mailbox.FenceRow) {
			f.t.Helper()
			got, err := f.Store.LoadOutboxFences(f.ctx, 3, []mailbox.Conversation{conversation})
			require.NoError(f.t, err)
			require.Equal(f.t, []mailbox.FenceRow{want}, got)
		}
		// A coordinator that lost its partition, and wakes up in the middle of a batch.
		now := state(5, mailbox.FenceSeen{Epoch: 7, Offset: 180}, mailbox.FenceSeen{Epoch: 1 << 40, Offset: 200})
		put(now)
		for _, late := range []mailbox.FenceRow{
			state(0), state(5), state(6, mailbox.FenceSeen{Epoch: 7, Offset: 180}), state(1<<40 - 1),
			state(4, mailbox.FenceSeen{Epoch: 5, Offset: 20}, mailbox.FenceSeen{Epoch: 7, Offset: 180}, mailbox.FenceSeen{Epoch: 1 << 40, Offset: 200}),
		} {
			put(late)
			stored(now)
		}
		put(now)
		stored(now)
		for _, next := range []mailbox.FenceRow{
			state(7, mailbox.FenceSeen{Epoch: 1 << 40, Offset: 200}), state(1 << 40), state(1<<40, mailbox.FenceSeen{Epoch: 1<<63 + 1, Offset: 3}), state(1<<63 + 1),
		} {
			put(next)
			stored(next)
		}
		f.crash()
		stored(state(1<<63 + 1))
	})
}
