package retention

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

const week = 7 * 24 * time.Hour

// TestChainNamesTheLinkThatDoesNotHold with both values and what to do.
func TestChainNamesTheLinkThatDoesNotHold(t *testing.T) {
	logs := LogRetention{Outbox: week, Dispatch: week}
	for name, c := range map[string]struct {
		set  Settings
		logs LogRetention
		says []string // none: the chain holds
	}{
		"off":                   {Settings{}, logs, nil},
		"off, a log for ever":   {Settings{}, LogRetention{Forever, Forever}, nil},
		"progress only":         {Settings{ReplayWindow: week + Margin}, logs, nil},
		"both":                  {Settings{ReplayWindow: 2 * week, Versions: 2*week + Margin}, logs, nil},
		"a longer dispatch log": {Settings{ReplayWindow: week + Margin, Versions: 2*week + Margin}, LogRetention{week, 2 * week}, nil},
		"progress for ever": {
			Settings{Versions: 10 * week},
			logs,
			[]string{"retention.versions is 1680h0m0s", "progress is kept for ever", "versions are kept for ever too", "set retention.replay_window"},
		},
		"shorter than progress": {
			Settings{ReplayWindow: 2 * week, Versions: 2*week + Margin - time.Second},
			logs,
			[]string{"retention.versions is 337h59m59s", "keeps dispatch progress for 336h0m0s", "by 2h0m0s", "set retention.versions to 338h0m0s or more"},
		},
		"shorter than the dispatch log": {
			Settings{ReplayWindow: week + Margin, Versions: 2 * week},
			LogRetention{week, 2 * week},
			[]string{"retention.versions is 336h0m0s", "the dispatch topic keeps its records for 336h0m0s", "338h0m0s or more"},
		},
		"a dispatch log for ever": {
			Settings{ReplayWindow: week + Margin, Versions: 9 * week},
			LogRetention{week, Forever},
			[]string{"the dispatch topic keeps its records for ever", "retention.ms"},
		},
		"a window shorter than the outbox": {
			Settings{ReplayWindow: time.Hour},
			logs,
			[]string{"retention.replay_window is 1h0m0s", "168h0m0s", "delivered twice", "170h0m0s or more"},
		},
		"an outbox for ever": {Settings{ReplayWindow: week}, LogRetention{Forever, week}, []string{"retention.replay_window is 168h0m0s", "for ever"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(c.set, c.logs, Margin)
			if c.says == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrChain)
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

// TestProgressGoesOnlyUnderTheDesignsConditions.
func TestProgressGoesOnlyUnderTheDesignsConditions(t *testing.T) {
	at := func(epoch mailbox.Epoch, offset int64) mailbox.Seq {
		s, err := mailbox.NewSeq(epoch, offset)
		require.NoError(t, err)
		return s
	}
	now := time.UnixMilli(1_800_000_000_000)
	window := time.Hour
	type state struct {
		p      mailbox.DispatchProgress
		w      mailbox.Watermarks
		window time.Duration
	}
	good := func() state {
		s := state{window: window}
		s.p = mailbox.DispatchProgress{
			Seq: at(2, 10), LastOffset: 15, LastSeen: now.Add(-window - time.Millisecond).UnixMilli(),
			Manifest: mailbox.Manifest{Lanes: []mailbox.LaneChunks{{Lane: 3, Users: 9, Chunks: 2}}}, Marks: mailbox.NewChunkSet(2),
		}
		s.p.Marks.Add(0)
		s.p.Marks.Add(1)
		for lane := range s.w.W {
			s.w.W[lane], s.w.Floor[lane] = at(2, 15), at(3, 15)
		}
		return s
	}
	for name, alter := range map[string]func(*state){
		"":                                func(*state) {},
		"no window":                       func(s *state) { s.window = 0 },
		"the last repeat is in it":        func(s *state) { s.p.LastSeen = now.Add(-window).UnixMilli() },
		"seen in the future":              func(s *state) { s.p.LastSeen = now.Add(week).UnixMilli() },
		"a chunk is open":                 func(s *state) { s.p.Marks = mailbox.NewChunkSet(2) },
		"unexpanded":                      func(s *state) { s.p.Unexpanded = true },
		"W of one lane is at the repeat":  func(s *state) { s.w.W[63] = at(2, 14) },
		"a floor is behind the repeat":    func(s *state) { s.w.Floor[0] = at(2, 14) },
		"a lane has none":                 func(s *state) { s.w.W[7] = 0 },
		"a floor of an epoch before":      func(s *state) { s.w.Floor[9] = at(1, 99) },
		"seen once, and W is just before": func(s *state) { s.p.LastOffset = 0; s.w.W[1] = at(2, 9) },
	} {
		s := good()
		alter(&s)
		require.Equal(t, name == "", MayRemoveProgress(&s.p, &s.w, now, s.window), name)
	}
}

// TestRunIsFreeWhenBothLogsHaveGotPastIt, in this order, and the operator's time is
// over.
func TestRunIsFreeWhenBothLogsHaveGotPastIt(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	var r Runs
	p := Positions{OutboxStart: []int64{0, 0}, OutboxEnd: []int64{5, 0}, DispatchStart: []int64{0}, DispatchEnd: []int64{9}}
	see := func(d time.Duration) {
		t.Helper()
		now = now.Add(d)
		require.NoError(t, r.Observe(now, p, 32*time.Hour, time.Hour))
	}
	see(0)
	require.Equal(t, uint64(1), r.Last)
	see(time.Minute)
	require.Equal(t, uint64(1), r.Last, "a new one comes now and then")
	p.OutboxStart[0] = 4
	see(100 * time.Hour)
	require.Zero(t, r.Open[0].Gone, "the outbox holds a record of before it")
	p.OutboxStart[0], p.OutboxEnd[0] = 5, 7
	p.DispatchStart[0], p.DispatchEnd[0] = 9, 9
	see(time.Minute)
	require.NotZero(t, r.Open[0].Gone)
	see(59 * time.Minute)
	require.Nil(t, r.Open[0].Dispatch, "a coordinator may have it in hand")
	p.DispatchEnd[0] = 11 // it had
	see(time.Hour)
	require.Equal(t, []int64{11}, r.Open[0].Dispatch)
	p.DispatchStart[0] = 10
	see(time.Hour)
	require.Zero(t, r.Freed)
	p.DispatchStart[0] = 11
	see(time.Minute)
	require.Equal(t, uint64(1), r.Freed)
	require.Greater(t, r.Open[0].Number, uint64(1))

	p.OutboxStart = []int64{1}
	require.ErrorIs(t, r.Observe(now, p, time.Hour, time.Hour), ErrPartitions)
}

// TestRunsAreBoundedWhileALogDoesNotGetOn.
func TestRunsAreBoundedWhileALogDoesNotGetOn(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	var r Runs
	p := Positions{OutboxStart: []int64{0}, OutboxEnd: []int64{1}, DispatchStart: []int64{0}, DispatchEnd: []int64{1}}
	var g GroupState
	for i := range uint64(10_000) {
		now = now.Add(time.Hour)
		require.NoError(t, r.Observe(now, p, 32*time.Hour, time.Hour))
		g.Note(1, i+1, r.Label(), r.Freed)
	}
	require.LessOrEqual(t, len(r.Open), maxOpenRuns)
	require.LessOrEqual(t, len(g.Checkpoints), maxOpenRuns+labelAhead)
}

// TestGroupThatWentBackForgetsWhatWasNotedOfTheFuture: its store was restored.
func TestGroupThatWentBackForgetsWhatWasNotedOfTheFuture(t *testing.T) {
	var g GroupState
	require.False(t, g.Note(1, 1, 3, 0), "nothing is before the first version")
	require.True(t, g.Note(1, 5, 3, 0))
	require.False(t, g.Note(1, 5, 4, 0))
	require.True(t, g.Note(1, 8, 4, 0))
	_, ok := g.Bound(2)
	require.False(t, ok)
	b, ok := g.Bound(3)
	require.True(t, ok)
	require.Equal(t, Checkpoint{3, 1, 5}, b)
	require.True(t, g.Note(1, 6, 7, 0))
	require.Equal(t, []Checkpoint{{3, 1, 5}, {7, 1, 6}}, g.Checkpoints)
	require.True(t, g.Note(2, 7, 9, 8))
	require.Equal(t, []Checkpoint{{7, 1, 6}, {9, 2, 7}}, g.Checkpoints, "what the bound has passed is forgotten")
}
