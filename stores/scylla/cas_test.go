package scylla

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

var testConversation = mailbox.Conversation{Tenant: "tenant", ID: "conversation"}

// faultLine is a store behind a proxy that fails at the moment when a
// compare-and-set is sent, and a second store that has a line of its own.
type faultLine struct {
	t      *testing.T
	ctx    context.Context
	proxy  *testservers.Proxy
	store  *Store
	direct *Store

	mu       sync.Mutex
	armed    bool
	onSend   func()
	onRead   func()
	sent     int
	readBack int
}

func newFaultLine(t *testing.T) *faultLine {
	t.Helper()
	o := shardOptions(t)
	f := &faultLine{t: t, ctx: t.Context(), proxy: testservers.StartProxy(t, testservers.SharedCassandra(t).Addr)}
	f.direct = openStore(t, o)
	o.URL = "cql://" + f.proxy.Addr + "/" + shardKeyspace
	o.Timeout = time.Second
	emptied := o.hooks.statement
	o.hooks.statement = func(stmt string) { emptied(stmt); f.statement(stmt) }
	f.store = openStore(t, o)
	return f
}

// statement is told what the store behind the proxy sends.
func (f *faultLine) statement(stmt string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		return
	}
	switch {
	case strings.Contains(stmt, " IF "):
		if f.sent++; f.sent == 1 && f.onSend != nil {
			f.onSend()
		}
	case strings.HasPrefix(stmt, "SELECT revision, writer "):
		if f.readBack++; f.readBack == 1 && f.onRead != nil {
			f.onRead()
		}
	}
}

// arm makes the next compare-and-set meet onSend just before it is sent, and
// onRead before its outcome is read for the first time.
func (f *faultLine) arm(onSend, onRead func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.sent, f.readBack = true, 0, 0
	f.onSend, f.onRead = onSend, onRead
}

func (f *faultLine) counts() (sent, readBack int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent, f.readBack
}

// swap is one kind of compare-and-set.
type swap struct {
	name string
	// prepare brings the row to where run's compare-and-set applies; it has run
	// once before, so that the statement is prepared on both sides.
	prepare func(f *faultLine)
	run     func(f *faultLine) error
	// applied checks by the direct store that run's write stands, once.
	applied func(f *faultLine)
}

func swaps() []swap {
	var own mailbox.Ownership
	fence := func(f *faultLine, shard mailbox.Shard, token byte) (mailbox.Ownership, error) {
		return f.store.Fence(f.ctx, mailbox.FenceRequest{Shard: shard, Token: mailbox.Token{token}, Owner: "node", Address: "address", Lease: time.Hour})
	}
	state := func(f *faultLine, n mailbox.Shard) mailbox.ShardState {
		f.t.Helper()
		st, err := f.direct.LoadShard(f.ctx, n)
		require.NoError(f.t, err)
		return st
	}
	must := func(f *faultLine, err error) {
		f.t.Helper()
		require.NoError(f.t, err)
	}
	marks := func(o int64) *mailbox.Watermarks {
		w := &mailbox.Watermarks{}
		if o > 0 {
			w.F = testSeq(o)
			w.W[3], w.Floor[3] = w.F, w.F
		}
		return w
	}
	owned := func(f *faultLine) {
		f.t.Helper()
		var err error
		own, err = fence(f, 0, 1)
		must(f, err)
	}
	head := func(f *faultLine) (string, uint64) {
		f.t.Helper()
		data, revision, err := f.direct.Head(f.ctx, testConversation)
		must(f, err)
		return string(data), revision
	}
	deployment := mailbox.Deployment{ShardCount: 4, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}
	return []swap{
		{
			"FirstFence",
			func(f *faultLine) { _, err := fence(f, 1, 9); must(f, err) },
			func(f *faultLine) (err error) { own, err = fence(f, 0, 1); return err },
			func(f *faultLine) {
				st := state(f, 0)
				require.Equal(f.t, mailbox.Epoch(1), st.Epoch)
				require.Equal(f.t, own, mailbox.Ownership{Epoch: st.Epoch, Token: st.Token})
			},
		},
		{
			"LaterFence",
			func(f *faultLine) { owned(f); must(f, f.store.ReleaseLease(f.ctx, own)) },
			func(f *faultLine) (err error) { own, err = fence(f, 0, 2); return err },
			func(f *faultLine) {
				st := state(f, 0)
				require.Equal(f.t, mailbox.Epoch(2), st.Epoch, "no epoch is skipped")
				require.Equal(f.t, own, mailbox.Ownership{Epoch: 2, Token: mailbox.Token{2}})
				require.Equal(f.t, own.Token, st.Token)
			},
		},
		{
			"Renewal",
			func(f *faultLine) { owned(f); must(f, f.store.RenewLease(f.ctx, own, time.Minute)) },
			func(f *faultLine) error { return f.store.RenewLease(f.ctx, own, 3*time.Hour) },
			func(f *faultLine) { require.Greater(f.t, time.Until(state(f, 0).LeaseUntil), 2*time.Hour) },
		},
		{
			"Frontier",
			func(f *faultLine) {
				owned(f)
				must(f, f.store.Begin(f.ctx, own, mailbox.BeginBatch{Frontier: testSeq(1)}))
			},
			func(f *faultLine) error {
				return f.store.Begin(f.ctx, own, mailbox.BeginBatch{Frontier: testSeq(2)})
			},
			func(f *faultLine) { require.Equal(f.t, testSeq(2), state(f, 0).F) },
		},
		{
			"Watermarks",
			func(f *faultLine) {
				owned(f)
				must(f, f.store.CommitWatermarks(f.ctx, own, marks(0), marks(4)))
			},
			func(f *faultLine) error { return f.store.CommitWatermarks(f.ctx, own, marks(4), marks(7)) },
			func(f *faultLine) { require.Equal(f.t, *marks(7), state(f, 0).Watermarks) },
		},
		{
			"FirstHead",
			func(f *faultLine) {
				other := mailbox.Conversation{Tenant: "tenant", ID: "other"}
				must(f, f.store.CompareAndSetHead(f.ctx, other, 0, []byte("a"), true))
			},
			func(f *faultLine) error {
				return f.store.CompareAndSetHead(f.ctx, testConversation, 0, []byte("a"), true)
			},
			func(f *faultLine) {
				data, revision := head(f)
				require.Equal(f.t, "a 1", fmt.Sprint(data, " ", revision))
			},
		},
		{
			"LaterHead",
			func(f *faultLine) {
				must(f, f.store.CompareAndSetHead(f.ctx, testConversation, 0, []byte("a"), true))
				must(f, f.store.CompareAndSetHead(f.ctx, testConversation, 1, []byte("b"), true))
			},
			func(f *faultLine) error {
				return f.store.CompareAndSetHead(f.ctx, testConversation, 2, []byte("c"), true)
			},
			func(f *faultLine) {
				data, revision := head(f)
				require.Equal(f.t, "c 3", fmt.Sprint(data, " ", revision))
			},
		},
		{
			"CommitState",
			func(f *faultLine) {
				must(f, f.store.CompareAndSetCommitState(f.ctx, 0, mailbox.CommitState{Epoch: 1}))
				must(f, f.store.CompareAndSetCommitState(f.ctx, 1, mailbox.CommitState{Epoch: 2}))
			},
			func(f *faultLine) error {
				return f.store.CompareAndSetCommitState(f.ctx, 2, mailbox.CommitState{Epoch: 3})
			},
			func(f *faultLine) {
				st, revision, err := f.direct.LoadCommitState(f.ctx)
				must(f, err)
				require.EqualValues(f.t, 3, revision)
				require.EqualValues(f.t, 3, st.Epoch)
			},
		},
		{
			"Deployment",
			func(f *faultLine) {
				must(f, f.store.CompareAndSetCommitState(f.ctx, 0, mailbox.CommitState{Epoch: 1})) // the same statement
			},
			func(f *faultLine) error { return f.store.EnsureDeployment(f.ctx, deployment) },
			func(f *faultLine) {
				must(f, f.direct.EnsureDeployment(f.ctx, deployment))
				other := deployment
				other.OutboxPartitions++
				require.ErrorIs(f.t, f.direct.EnsureDeployment(f.ctx, other), mailbox.ErrDeploymentMismatch)
			},
		},
	}
}

func testSeq(offset int64) mailbox.Seq {
	s, err := mailbox.NewSeq(1, offset)
	if err != nil {
		panic(err)
	}
	return s
}

func eachSwap(t *testing.T, test func(t *testing.T, f *faultLine, s swap)) {
	for _, s := range swaps() {
		t.Run(s.name, func(t *testing.T) {
			f := newFaultLine(t)
			s.prepare(f)
			test(t, f, s)
		})
	}
}

// The server did it and its answer was lost: the caller is told so.
func TestAppliedWithoutAnAnswerIsSuccess(t *testing.T) {
	eachSwap(t, func(t *testing.T, f *faultLine, s swap) {
		f.arm(f.proxy.DropReplies, f.proxy.Heal)
		require.NoError(t, s.run(f))
		sent, readBack := f.counts()
		require.Equal(t, 1, sent)
		require.Positive(t, readBack)
		s.applied(f)
	})
}

// The connection went away before the request arrived: it is sent again.
func TestLostBeforeItArrivedIsSentAgain(t *testing.T) {
	eachSwap(t, func(t *testing.T, f *faultLine, s swap) {
		f.arm(f.proxy.ResetPeer, f.proxy.Heal)
		require.NoError(t, s.run(f))
		sent, _ := f.counts()
		require.Equal(t, 2, sent)
		s.applied(f)
	})
}

// The answer comes after the client has given up on it.
func TestAnswerAfterTheTimeoutIsReadBack(t *testing.T) {
	eachSwap(t, func(t *testing.T, f *faultLine, s swap) {
		f.arm(func() { f.proxy.Latency(3 * time.Second) }, f.proxy.Heal)
		require.NoError(t, s.run(f))
		sent, _ := f.counts()
		require.Equal(t, 1, sent)
		s.applied(f)
	})
}

// Nobody can say what became of it, so nobody does.
func TestUnreadableOutcomeIsUnknown(t *testing.T) {
	eachSwap(t, func(t *testing.T, f *faultLine, s swap) {
		ctx, cancel := context.WithTimeout(f.ctx, 2*time.Second)
		defer cancel()
		f.ctx = ctx
		f.arm(f.proxy.DropReplies, nil)
		err := s.run(f)
		require.ErrorIs(t, err, mailbox.ErrOutcomeUnknown)
		for _, made := range []error{mailbox.ErrHeadMoved, mailbox.ErrWatermarkConflict, mailbox.ErrNotOwner, mailbox.ErrLeaseHeld, mailbox.ErrDeploymentMismatch} {
			require.NotErrorIs(t, err, made)
		}
	})
}

// headAt makes a head at a revision, by the store behind the proxy.
func (f *faultLine) headAt(revision uint64) {
	f.t.Helper()
	for r := range revision {
		require.NoError(f.t, f.store.CompareAndSetHead(f.ctx, testConversation, r, []byte("before"), true))
	}
}

// Another writer's revision stands where ours would: ours was not applied and
// never will be.
func TestLostRequestAndAnotherWriterIsMoved(t *testing.T) {
	f := newFaultLine(t)
	f.headAt(2)
	f.arm(f.proxy.ResetPeer, func() {
		require.NoError(t, f.direct.CompareAndSetHead(f.ctx, testConversation, 2, []byte("theirs"), true))
		f.proxy.Heal()
	})
	require.ErrorIs(t, f.store.CompareAndSetHead(f.ctx, testConversation, 2, []byte("ours"), true), mailbox.ErrHeadMoved)
	data, revision, err := f.store.Head(f.ctx, testConversation)
	require.NoError(t, err)
	require.EqualValues(t, 3, revision)
	require.Equal(t, "theirs", string(data))
}

// Ours was applied and another's followed: the row does not tell.
func TestOvertakenOutcomeIsUnknown(t *testing.T) {
	f := newFaultLine(t)
	f.headAt(2)
	f.arm(f.proxy.DropReplies, func() {
		require.NoError(t, f.direct.CompareAndSetHead(f.ctx, testConversation, 3, []byte("theirs"), true))
		f.proxy.Heal()
	})
	err := f.store.CompareAndSetHead(f.ctx, testConversation, 2, []byte("ours"), true)
	require.ErrorIs(t, err, mailbox.ErrOutcomeUnknown)
	require.NotErrorIs(t, err, mailbox.ErrHeadMoved)
}

// A shard's row says what a commit that was overtaken became.
func TestOvertakenCommitIsReadFromTheRow(t *testing.T) {
	f := newFaultLine(t)
	own, err := f.store.Fence(f.ctx, mailbox.FenceRequest{Token: mailbox.Token{1}, Lease: time.Hour})
	require.NoError(t, err)
	w := func(o int64) *mailbox.Watermarks {
		w := &mailbox.Watermarks{F: testSeq(o)}
		w.W[0], w.Floor[0] = w.F, w.F
		return w
	}
	require.NoError(t, f.store.CommitWatermarks(f.ctx, own, &mailbox.Watermarks{}, w(1)))
	f.arm(f.proxy.DropReplies, func() {
		require.NoError(t, f.direct.RenewLease(f.ctx, own, 2*time.Hour))
		f.proxy.Heal()
	})
	require.NoError(t, f.store.CommitWatermarks(f.ctx, own, w(1), w(2)))

	f.arm(f.proxy.DropReplies, func() {
		require.NoError(t, f.direct.CommitWatermarks(f.ctx, own, w(3), w(4)))
		f.proxy.Heal()
	})
	err = f.store.CommitWatermarks(f.ctx, own, w(2), w(3))
	require.ErrorIs(t, err, mailbox.ErrOutcomeUnknown, "it was applied, and W has moved on since")
	require.NotErrorIs(t, err, mailbox.ErrWatermarkConflict)

	f.arm(f.proxy.ResetPeer, func() {
		require.NoError(t, f.direct.ReleaseLease(f.ctx, own))
		_, err := f.direct.Fence(f.ctx, mailbox.FenceRequest{Token: mailbox.Token{2}, Lease: time.Hour})
		require.NoError(t, err)
		f.proxy.Heal()
	})
	require.ErrorIs(t, f.store.CommitWatermarks(f.ctx, own, w(4), w(5)), mailbox.ErrNotOwner)
	st, err := f.direct.LoadShard(f.ctx, 0)
	require.NoError(t, err)
	require.Equal(t, *w(4), st.Watermarks)
}

// Several processes write one head: each revision has one writer, who knows it.
func TestWritersOfSeveralProcessesContend(t *testing.T) {
	o := shardOptions(t)
	const processes, rounds = 3, 8
	won := make([][]string, processes)
	var wg sync.WaitGroup
	for p := range processes {
		s := openStore(t, o)
		wg.Go(func() {
			for n := 0; n < rounds; {
				_, revision, err := s.Head(t.Context(), testConversation)
				if err != nil {
					t.Error(err)
					return
				}
				body := fmt.Sprintf("%d/%d", p, n)
				switch err := s.CompareAndSetHead(t.Context(), testConversation, revision, []byte(body), true); {
				case err == nil:
					won[p] = append(won[p], fmt.Sprint(revision+1))
					n++
				case !errors.Is(err, mailbox.ErrHeadMoved):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for p := range won {
		for _, r := range won[p] {
			seen[r]++
		}
	}
	require.Len(t, seen, processes*rounds, "a revision was won twice or none was left out: %v", won)
}
