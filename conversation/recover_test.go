package conversation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

func TestAStoreThatLosesNothingIsOpenAtOnce(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	require.NoError(t, s.Closed())
	require.NoError(t, s.Recover(t.Context()))
	_, err := s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err)
	require.NoError(t, s.Beat(t.Context()))
	_, revision, err := d.store.LoadCommitState(t.Context())
	require.NoError(t, err)
	require.Zero(t, revision, "no row, no marker, no heartbeat")
	ends, err := d.outbox.Ends(t.Context())
	require.NoError(t, err)
	sum := int64(0)
	for _, e := range ends {
		sum += e
	}
	require.Equal(t, int64(1), sum)
	require.Zero(t, d.outbox.records(t, mailbox.Conversation{Tenant: "acme", ID: "c"})[0].GetCommitEpoch())
}

func TestClosedUntilRecovered(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	s := d.service(t)
	for range 2 {
		_, err := s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
		require.ErrorIs(t, err, ErrRecovering)
		_, err = s.Join(t.Context(), change("g", "j1", "ann"))
		require.ErrorIs(t, err, ErrRecovering)
		_, err = s.Group(t.Context(), mailbox.Group{Tenant: "acme", ID: "g"})
		require.ErrorIs(t, err, ErrRecovering)
		require.NoError(t, s.Beat(t.Context()), "nothing to say yet")
		require.NoError(t, s.Recover(t.Context()))
		_, err = s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
		require.NoError(t, err)

		// The server restarts: whoever notices closes the gate for good.
		d.restart(0)
		_, err = s.Commit(t.Context(), message("c", "ann", "m2", "bob"))
		require.ErrorIs(t, err, mailbox.ErrStoreRestarted)
		require.ErrorIs(t, s.Closed(), ErrRecovering)
		require.ErrorIs(t, s.Recover(t.Context()), mailbox.ErrStoreRestarted, "it takes a new service")
		s = d.service(t)
	}
}

// The whole way for a commit, a join, a leave and an import that a store has
// forgotten, with what comes after them.
func TestRecoveryGivesNothingOutTwice(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	var answers []answer
	for _, r := range script() {
		a, err := r.do(t.Context(), s)
		require.NoError(t, err)
		answers = append(answers, a)
	}
	st, _, err := d.store.LoadCommitState(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1), st.Epoch, "the first start is a recovery of nothing")

	d.restart(1 << 30) // everything: no heartbeat either
	s = d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	for i, r := range script() {
		a, err := r.do(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, answers[i], a, "request %d", i)
	}
	joined, err := s.Join(t.Context(), change("g", "j4", "dan"))
	require.NoError(t, err)
	require.Equal(t, uint64(7), joined.ConversationSeq)
	k := newChecker(t, d.deployment)
	k.conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
	require.Equal(t, uint64(7), k.last)
	recs := d.outbox.records(t, mailbox.Conversation{Tenant: "acme", ID: "g"})
	require.Equal(t, uint64(2), recs[len(recs)-1].GetCommitEpoch())

	// Recovered once, a later process of the same run opens without reading.
	before := d.server.written()
	other := d.service(t)
	require.NoError(t, other.Recover(t.Context()))
	require.Equal(t, before, d.server.written())
}

// What a record restores is byte for byte what the commit wrote.
func TestRestoredRowsAreTheOnesThatWereLost(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	requests := append(script(), commitRequest(message("c", "ann", "m1", "ann", "bob")))
	for _, r := range requests {
		_, err := r.do(t.Context(), s)
		require.NoError(t, err)
	}
	rows := func() (out [][]byte) {
		for _, r := range requests {
			b, err := d.store.Committed(t.Context(), r.conversation, r.sender, r.id)
			require.NoError(t, err, r.id)
			out = append(out, b)
		}
		for _, id := range []string{"c", "g"} {
			b, _, err := d.store.Head(t.Context(), mailbox.Conversation{Tenant: "acme", ID: id})
			require.NoError(t, err)
			out = append(out, b)
		}
		for v := uint64(1); v <= 4; v++ {
			b, err := d.store.VersionManifest(t.Context(), mailbox.GroupVersion{Group: mailbox.Group{Tenant: "acme", ID: "g"}, Generation: 1, Version: v})
			require.NoError(t, err)
			out = append(out, b)
		}
		return out
	}
	before := rows()
	d.restart(1 << 30)
	require.NoError(t, d.service(t).Recover(t.Context()))
	require.Equal(t, before, rows())
}

// An old writer's record that lands behind the marker does not count, and its
// seq, version and slots belong to another; it never answers success.
func TestARecordThatLandsBehindTheMarker(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	c := mailbox.Conversation{Tenant: "acme", ID: "g"}
	wait := false
	p := startProcess(t, d.deployment, func(_ int, op string) fault {
		if wait && op == "publish" {
			return waitLate
		}
		return noFault
	})
	require.NoError(t, p.serve.Recover(t.Context()))
	_, err := p.serve.Join(t.Context(), change("g", "j1", "ann"))
	require.NoError(t, err)
	require.NoError(t, p.serve.Beat(t.Context()))
	written := d.server.written()
	wait = true
	failed := make(chan error)
	go func() {
		_, err := p.serve.Join(context.Background(), change("g", "j2", "bob"))
		failed <- err
	}()
	require.Eventually(t, func() bool { return d.outbox.inFlight() == 1 }, testTimeout, testPoll)

	d.restart(d.server.written() - written) // the join's compare-and-set is lost
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	cyd, err := s.Join(t.Context(), change("g", "j3", "cyd"))
	require.NoError(t, err)
	require.Equal(t, uint64(2), cyd.ConversationSeq)
	d.outbox.land(1)
	err = <-failed
	require.ErrorIs(t, err, mailbox.ErrStoreRestarted)
	bob, err := s.Join(t.Context(), change("g", "j2", "bob"))
	require.NoError(t, err)
	require.Equal(t, uint64(3), bob.ConversationSeq)

	_, stale := d.outbox.counted(t, c)
	require.Equal(t, 1, stale)
	k := newChecker(t, d.deployment)
	k.conversation(c)
	require.Equal(t, uint64(3), k.last)

	// A second loss: the record below the next marker must not come back to life.
	d.restart(d.server.written() - written)
	s = d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	again, err := s.Join(t.Context(), change("g", "j2", "bob"))
	require.NoError(t, err)
	require.Equal(t, bob.ConversationSeq, again.ConversationSeq)
	newChecker(t, d.deployment).conversation(c)
}

// A record in flight that lands while the outbox is being read, below the marker,
// counts: its seq is taken.
func TestARecordThatLandsJustBelowTheMarker(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	p := startProcess(t, d.deployment, atPublish(crashLate))
	require.NoError(t, p.serve.Recover(t.Context()))
	written := d.server.written()
	_, err := p.serve.Join(t.Context(), change("g", "j1", "ann"))
	require.ErrorIs(t, err, errCrashed)
	d.restart(d.server.written() - written)
	p = startProcess(t, d.deployment, func(_ int, op string) fault {
		if op == "mark" {
			d.outbox.land(1)
		}
		return noFault
	})
	require.NoError(t, p.serve.Recover(t.Context()))
	got, err := p.serve.Join(t.Context(), change("g", "j1", "ann"))
	require.NoError(t, err)
	require.True(t, got.Duplicate)
	require.Equal(t, uint64(1), got.ConversationSeq)
	newChecker(t, d.deployment).conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
}

// A record that does not count may lie above the offsets of the heartbeat, with
// the marker that says so far below them.
func TestAStaleRecordAboveTheHeartbeat(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	p := startProcess(t, d.deployment, atPublish(crashLate))
	require.NoError(t, p.serve.Recover(t.Context()))
	_, err := p.serve.Commit(t.Context(), message("c", "ann", "late", "bob"))
	require.ErrorIs(t, err, errCrashed)
	d.restart(1 << 30)
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	// Others of the same partition carry the heartbeat far from the marker.
	c := mailbox.Conversation{Tenant: "acme", ID: "c"}
	other := ""
	for i := 0; other == ""; i++ {
		if o := (mailbox.Conversation{Tenant: "acme", ID: fmt.Sprint(i)}); mailbox.CommitBucket(o, testPartitions) == mailbox.CommitBucket(c, testPartitions) {
			other = o.ID
		}
	}
	for i := range recoveryLookback + 20 {
		_, err := s.Commit(t.Context(), message(other, "ann", fmt.Sprint(i), "bob"))
		require.NoError(t, err)
	}
	require.NoError(t, s.Beat(t.Context()))
	d.outbox.land(1) // next in line, were it to count
	_, stale := d.outbox.counted(t, c)
	require.Equal(t, 1, stale)
	d.restart(0)
	s = d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	late, err := s.Commit(t.Context(), message("c", "ann", "late", "bob"))
	require.NoError(t, err)
	require.False(t, late.Duplicate)
	k := newChecker(t, d.deployment)
	k.conversation(c)
	require.Equal(t, uint64(1), k.last)
}

// What a store may lose with its tail is not told before it is on the outbox.
func TestGroupTellsOnlyWhatIsOnTheOutbox(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	p := startProcess(t, d.deployment, atPublish(crashBefore))
	require.NoError(t, p.serve.Recover(t.Context()))
	_, err := p.serve.Join(t.Context(), change("g", "j1", "ann"))
	require.ErrorIs(t, err, errCrashed)
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	g := mailbox.Group{Tenant: "acme", ID: "g"}
	info, err := s.Group(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, uint64(1), info.Version)
	require.Len(t, d.outbox.records(t, mailbox.Conversation(g)), 1)
}

// Every call to the outside that the script makes is tried with every fault
// together with a restart of the store that loses a random number of its last
// writes, and recovery's own calls too. The client repeats what failed. In the
// end all is as if nothing had happened, and the second answers are the first.
func TestEveryStepCanMeetALostTail(t *testing.T) {
	var ops []string
	{
		var mu sync.Mutex
		d := newLossy(t, t.Context())
		p := startProcess(t, d.deployment, func(_ int, op string) fault {
			mu.Lock()
			defer mu.Unlock()
			ops = append(ops, op)
			return noFault
		})
		require.NoError(t, p.serve.Recover(t.Context()))
		for _, r := range script() {
			_, err := r.do(t.Context(), p.serve)
			require.NoError(t, err)
			require.NoError(t, p.serve.Beat(t.Context()))
		}
		d.close()
	}
	require.Greater(t, len(ops), 70)
	draws := 3
	if testing.Short() {
		draws = 1
	}
	for i, op := range ops {
		for _, what := range []fault{noFault, crashBefore, crashAfter, crashLate, waitLate} {
			if (what == crashLate || what == waitLate) && op != "publish" && op != "keep answer" {
				continue
			}
			for draw := range draws {
				loseAtStep(t, uint64(i+1)<<16|uint64(what)<<8|uint64(draw))
			}
		}
	}
}

// loseAtStep plays the script with one fault. The seed holds the number of the
// call, the fault, and a number for the random rest.
func loseAtStep(t *testing.T, seed uint64) {
	call, what, rng := int(seed>>16), fault(seed>>8&0xff), seeded(seed)
	d := newLossy(t, t.Context())
	defer d.close()
	beats := rng.IntN(3) > 0
	at := ""
	name := func() string {
		return fmt.Sprintf("seed %d: call %d (%s), %s, heartbeats %v", seed, call, at, faultNames[what], beats)
	}
	lose := func() int { return rng.IntN(1 + rng.IntN(d.server.written()+1)) }
	restarted := false
	restart := func() {
		restarted = true
		d.restart(lose())
	}
	next := func(n int, op string) fault {
		if n != call {
			return noFault
		}
		at = op
		if (what == crashLate || what == waitLate) && op != "publish" && op != "keep answer" {
			return noFault // without heartbeats, this is another call
		}
		if what == noFault {
			restart() // under a process that lives on
		}
		return what
	}
	p := startProcess(t, d.deployment, next)
	reopen := func() {
		for attempt := 0; p.serve.Closed() != nil; attempt++ {
			require.Less(t, attempt, 5, name())
			if p.crashed() || errors.Is(p.serve.Closed(), mailbox.ErrStoreRestarted) {
				if !restarted {
					restart()
				}
				p = startProcess(t, d.deployment, nil)
			}
			d.outbox.land(rng.IntN(2))
			err := p.serve.Recover(t.Context())
			require.True(t, err == nil || errors.Is(err, errCrashed) || errors.Is(err, mailbox.ErrStoreRestarted), "%s: %v", name(), err)
		}
	}
	do := func(r request) (answer, error) {
		if what != waitLate {
			return r.do(t.Context(), p.serve)
		}
		// Whoever waits for a record in flight waits over the restart.
		type result struct {
			a   answer
			err error
		}
		done := make(chan result, 1)
		waiting, serve := d.outbox.inFlight(), p.serve
		go func() {
			a, err := r.do(context.Background(), serve)
			done <- result{a, err}
		}()
		for {
			select {
			case got := <-done:
				return got.a, got.err
			case <-d.outbox.delayed():
			}
			if d.outbox.inFlight() == waiting {
				continue
			}
			restart()
			old := p
			if rng.IntN(3) == 0 {
				d.outbox.land(1)
			}
			p = startProcess(t, d.deployment, nil)
			reopen()
			d.outbox.land(1)
			got := <-done
			require.Error(t, got.err, name())
			require.Error(t, old.serve.Closed(), name())
			return got.a, got.err
		}
	}
	answers := make([]answer, len(script()))
	reopen()
	for i, r := range script() {
		for attempt := 0; ; attempt++ {
			require.Less(t, attempt, 4, "%s: request %d", name(), i)
			got, err := do(r)
			if err == nil {
				answers[i] = got
				break
			}
			require.True(t, errors.Is(err, errCrashed) || errors.Is(err, mailbox.ErrStoreRestarted) || errors.Is(err, ErrRecovering), "%s: request %d: %v", name(), i, err)
			if p.crashed() && p.serve.Closed() == nil {
				p.serve.shut(errCrashed)
			}
			reopen()
		}
		if beats {
			_ = p.serve.Beat(t.Context())
		}
	}
	// A last loss, and what is still in flight arrives behind it.
	d.restart(lose())
	p = startProcess(t, d.deployment, nil)
	reopen()
	d.outbox.land(9)
	for i, r := range script() {
		got, err := r.do(t.Context(), p.serve)
		require.NoError(t, err, name())
		require.Equal(t, answers[i], got, "%s: request %d answers something else", name(), i)
	}
	k := newChecker(t, d.deployment)
	k.conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
	require.Equal(t, uint64(6), k.last, name())
	require.NoError(t, p.serve.Sweep(t.Context()))
	pending := 0
	require.NoError(t, d.store.PendingHeads(t.Context(), func(mailbox.Conversation) bool { pending++; return true }))
	require.Zero(t, pending, name())
}

// Several processes recover at once, with faults; they end with one epoch, and
// never with one below a marker.
func TestRecoveriesConverge(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		d := newLossy(t, t.Context())
		s := d.service(t)
		require.NoError(t, s.Recover(t.Context()))
		for _, r := range script() {
			_, err := r.do(t.Context(), s)
			require.NoError(t, err)
		}
		rng := seeded(seed)
		for range 3 {
			d.restart(rng.IntN(d.server.written()))
			convergeOnce(t, d, seed, rng.Uint64())
		}
		newChecker(t, d.deployment).conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
		d.close()
	}
}

func convergeOnce(t *testing.T, d *lossy, seed, draw uint64) {
	const n = 3
	epochs := make(chan uint64, n)
	for i := range n {
		rng := rand.New(rand.NewPCG(draw, uint64(i)))
		go func() {
			for {
				p := startOn(t, d.deployment, d.server.connect(), func(int, string) fault {
					if rng.IntN(40) == 0 {
						return []fault{crashBefore, crashAfter, lostBefore, lostAfter}[rng.IntN(4)]
					}
					return noFault
				})
				for !p.crashed() {
					if p.serve.Recover(context.Background()) == nil {
						epochs <- p.serve.epoch.Load()
						return
					}
				}
			}
		}()
	}
	first := <-epochs
	for range n - 1 {
		require.Equal(t, first, <-epochs, "seed %d", seed)
	}
	for p, list := range d.outbox.partitions {
		largest := uint64(0)
		for _, l := range list {
			if l.Kind == records.OutboxCommitEpoch {
				e, err := records.DecodeCommitEpoch(l.Value)
				require.NoError(t, err)
				largest = max(largest, uint64(e))
			}
		}
		require.Equal(t, first, largest, "seed %d partition %d", seed, p)
	}
}

func TestATailThatTheLogDoesNotHoldIsRefused(t *testing.T) {
	t.Run("the heartbeat is below the log", func(t *testing.T) {
		d := newLossy(t, t.Context())
		defer d.close()
		s := d.service(t)
		require.NoError(t, s.Recover(t.Context()))
		for i := range 8 {
			_, err := s.Commit(t.Context(), message("c", "ann", fmt.Sprint(i), "bob"))
			require.NoError(t, err)
		}
		d.restart(20)
		d.outbox.start = 4
		err := d.service(t).Recover(t.Context())
		require.ErrorIs(t, err, ErrTailLost)
		require.ErrorContains(t, err, "everything below offset 1 of outbox partition")
		require.ErrorContains(t, err, "the log holds 4 up to")
	})
	t.Run("the log ends below the heartbeat", func(t *testing.T) {
		d := newLossy(t, t.Context())
		defer d.close()
		s := d.service(t)
		require.NoError(t, s.Recover(t.Context()))
		_, err := s.Commit(t.Context(), message("c", "ann", "m", "bob"))
		require.NoError(t, err)
		require.NoError(t, s.Beat(t.Context()))
		d.restart(0)
		d.outbox.partitions = [testPartitions][]records.Logged{}
		require.ErrorIs(t, d.service(t).Recover(t.Context()), ErrTailLost)
	})
	t.Run("a conversation has a gap", func(t *testing.T) {
		d := newLossy(t, t.Context())
		defer d.close()
		s := d.service(t)
		require.NoError(t, s.Recover(t.Context()))
		for i := range 3 {
			_, err := s.Commit(t.Context(), message("c", "ann", fmt.Sprint(i), "bob"))
			require.NoError(t, err)
		}
		d.restart(1 << 30)
		d.outbox.start = 3 // with no heartbeat, the log's start is where it begins
		err := d.service(t).Recover(t.Context())
		require.ErrorIs(t, err, ErrTailLost)
		require.ErrorContains(t, err, `conversation "acme"/"c" is at conversation_seq 0 in the store, and the next that the outbox holds of it is 3`)
	})
}

// Records of other writers, and what nobody can read, are none of recovery's
// business; a record of a newer build may be a commit.
func TestRecoveryPassesOverWhatIsNotACommit(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	for p := range int32(testPartitions) {
		d.outbox.put(p, records.OutboxMessage, []byte("junk"))
		d.outbox.put(p, records.OutboxCommitEpoch, []byte("junk"))
		d.outbox.put(p, records.OutboxAnswer, []byte("junk"))
	}
	plain := newDeployment(t)
	_, err := plain.service(t).Commit(t.Context(), message("elsewhere", "ann", "m1", "bob"))
	require.NoError(t, err)
	c := mailbox.Conversation{Tenant: "acme", ID: "elsewhere"}
	b, err := records.EncodeOutbox(plain.outbox.records(t, c)[0], testShards)
	require.NoError(t, err)
	d.outbox.put(mailbox.CommitBucket(c, testPartitions), records.OutboxMessage, b)
	require.NoError(t, d.service(t).Recover(t.Context()))
	_, revision, err := d.store.Head(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, revision)

	d.restart(0)
	d.outbox.put(0, records.OutboxCommitEpoch, []byte{0x08, 0x02, 0x10, 0x07})
	require.ErrorIs(t, d.service(t).Recover(t.Context()), records.ErrUnknownVersion)
}

// A marker that nobody reserved is no reason to serve below it.
func TestRecoveryGoesOverAForeignMarker(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	marks := 0
	p := startProcess(t, d.deployment, func(_ int, op string) fault {
		if op == "mark" {
			if marks++; marks == 1 {
				for i := range int32(testPartitions) {
					d.outbox.put(i, records.OutboxCommitEpoch, records.CommitEpoch(9).Encode())
				}
			}
		}
		return noFault
	})
	require.NoError(t, p.serve.Recover(t.Context()))
	require.Equal(t, uint64(10), p.serve.epoch.Load())
}

func TestHeartbeatIsCheapWhenIdle(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	p := startProcess(t, d.deployment, nil)
	require.NoError(t, p.serve.Recover(t.Context()))
	_, err := p.serve.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err)
	require.NoError(t, p.serve.Beat(t.Context()))
	st, _, err := d.store.LoadCommitState(t.Context())
	require.NoError(t, err)
	at := mailbox.CommitBucket(mailbox.Conversation{Tenant: "acme", ID: "c"}, testPartitions)
	require.Equal(t, int64(2), st.Positions[at])
	require.Equal(t, int64(0), st.Markers[at])
	calls := p.calls
	require.NoError(t, p.serve.Beat(t.Context()))
	require.Equal(t, calls, p.calls, "nothing was committed since")

	// Another process's heartbeat is not taken back.
	other := startProcess(t, d.deployment, nil)
	require.NoError(t, other.serve.Recover(t.Context()))
	_, err = other.serve.Commit(t.Context(), message("c", "ann", "m2", "bob"))
	require.NoError(t, err)
	_, err = p.serve.Commit(t.Context(), message("c", "ann", "m3", "bob"))
	require.NoError(t, err)
	require.NoError(t, other.serve.Beat(t.Context()))
	require.NoError(t, p.serve.Beat(t.Context()))
	st, _, err = d.store.LoadCommitState(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(4), st.Positions[at])
}

// A store that was emptied under a running node is noticed at the next heartbeat.
func TestHeartbeatNoticesAnotherState(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	_, err := s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err)
	_, revision, err := d.store.LoadCommitState(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.store.CompareAndSetCommitState(t.Context(), revision, mailbox.CommitState{Incarnation: "another"}))
	require.ErrorIs(t, s.Beat(t.Context()), mailbox.ErrCorrupt)
	require.ErrorIs(t, s.Closed(), ErrRecovering)
}
