package conversation

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/quota"
)

// tariff is a quota that notes what was charged for good.
type tariff struct {
	quota.Observer // nil: only what is below is called

	*quota.Limiter
	clock *clock

	mu      sync.Mutex
	counted map[string]int
	waits   chan struct{}
}

func newTariff(p quota.Policy) *tariff {
	q := &tariff{clock: &clock{now: time.Unix(1_000_000, 0)}, counted: map[string]int{}, waits: make(chan struct{}, 100)}
	q.Limiter = quota.NewLimiter(quota.Options{Policy: p, MaxWaiting: 10, Now: q.clock.Now, Observer: q})
	return q
}

func (q *tariff) QuotaDecision(outcome string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted[outcome]++
}

func (q *tariff) QuotaWaiting(delta int) {
	if delta > 0 {
		q.waits <- struct{}{}
	}
}

// kept is how many charges were not given back.
func (q *tariff) kept() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counted["accepted"] + q.counted["delayed"] + q.counted["forced"] - q.counted["refunded"]
}

// left returns how many entries the tenant may still have dispatched.
func (q *tariff) left(t *testing.T) (n int) {
	t.Helper()
	var receipts []*quota.Receipt
	for {
		r, err := q.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: 1})
		if err != nil {
			break
		}
		receipts = append(receipts, r)
	}
	for _, r := range receipts {
		r.Refund()
	}
	return len(receipts)
}

func (d *deployment) charged(t *testing.T, q Quota) *Service {
	t.Helper()
	c := d.config()
	c.Quota = q
	s, err := New(c)
	require.NoError(t, err)
	return s
}

func TestEachIsChargedByTheUsersItGoesTo(t *testing.T) {
	d := newDeployment(t)
	q := newTariff(quota.Policy{Rate: 1, Burst: 1_000})
	s := d.charged(t, q)
	left := 1_000
	for _, step := range []struct {
		what string
		cost int
		do   func() error
	}{
		{"an import, to all who are members then", 100, func() error { _, err := s.Import(t.Context(), change("g", "1", manyUsers(100)...)); return err }},
		{"an import that changes nothing", 0, func() error { _, err := s.Import(t.Context(), change("g", "2", manyUsers(100)...)); return err }},
		{"a join, to the joiners too", 101, func() error { _, err := s.Join(t.Context(), change("g", "3", "zoe")); return err }},
		{"a message to a group", 101, func() error { _, err := s.Commit(t.Context(), groupMessage("g", "zoe", "4")); return err }},
		{"a leave, to the leaver too", 101, func() error { _, err := s.Leave(t.Context(), change("g", "5", "zoe")); return err }},
		{"a message to the rest", 100, func() error { _, err := s.Commit(t.Context(), groupMessage("g", "zoe", "6")); return err }},
		{"a single chat", 2, func() error { _, err := s.Commit(t.Context(), message("c", "ann", "7", "ann", "bob")); return err }},
		{"a single chat that names nobody again", 2, func() error { _, err := s.Commit(t.Context(), message("c", "ann", "8")); return err }},
	} {
		require.NoError(t, step.do(), step.what)
		left -= step.cost
		require.Equal(t, left, q.left(t), step.what)
	}
}

func TestRepetitionIsNeitherChargedNorRefused(t *testing.T) {
	d := newDeployment(t)
	q := newTariff(quota.Policy{Rate: 1, Burst: 5})
	s := d.charged(t, q)
	first, err := s.Commit(t.Context(), message("c", "ann", "1", "ann", "bob"))
	require.NoError(t, err)
	repeat := func() {
		t.Helper()
		again, err := s.Commit(t.Context(), message("c", "ann", "1", "ann", "bob"))
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, first.ConversationSeq, again.ConversationSeq)
	}
	repeat()
	require.Equal(t, 3, q.left(t), "one charge")
	_, err = s.Commit(t.Context(), message("c", "ann", "2", "ann", "bob"))
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), message("c", "ann", "3", "ann", "bob"))
	require.ErrorIs(t, err, quota.ErrExceeded)
	repeat()
	require.Equal(t, 1, q.left(t))
	// What was refused is nowhere; tried again in time it is the next.
	q.clock.set(q.clock.Now().Add(time.Second))
	third, err := s.Commit(t.Context(), message("c", "ann", "3", "ann", "bob"))
	require.NoError(t, err)
	require.False(t, third.Duplicate)
	require.EqualValues(t, 3, third.ConversationSeq)
}

// TestMessageOfAnotherProcessIsNeitherChargedNorRefused: that process has decided
// it and come no further; this one still remembers the head from before.
func TestMessageOfAnotherProcessIsNeitherChargedNorRefused(t *testing.T) {
	for _, burst := range []int{2, 100} {
		t.Run(fmt.Sprint("burst ", burst), func(t *testing.T) {
			d := newDeployment(t)
			q := newTariff(quota.Policy{Rate: 1, Burst: burst})
			s := d.charged(t, q)
			_, err := s.Commit(t.Context(), message("c", "ann", "1", "ann", "bob"))
			require.NoError(t, err)
			left := q.left(t)
			other := startProcess(t, d, func(_ int, op string) fault {
				if op == "publish" {
					return crashBefore
				}
				return noFault
			})
			_, err = other.serve.Commit(t.Context(), message("c", "ann", "2", "ann", "bob"))
			require.Error(t, err)
			res, err := s.Commit(t.Context(), message("c", "ann", "2", "ann", "bob"))
			require.NoError(t, err)
			require.True(t, res.Duplicate)
			require.Equal(t, left, q.left(t))
		})
	}
}

// TestLostCompareAndSetIsChargedOnce lets two processes get into each other's
// way: what is charged in the end is what was committed.
func TestLostCompareAndSetIsChargedOnce(t *testing.T) {
	d := newDeployment(t)
	q := newTariff(quota.Policy{Rate: 1_000, Burst: 1_000})
	const each = 100
	var wg sync.WaitGroup
	for p := range 2 {
		s := d.charged(t, q)
		wg.Go(func() {
			for i := range each {
				// Every tenth is sent to both.
				id := fmt.Sprint("m-", i)
				if i%10 > 0 {
					id = fmt.Sprint("m-", p, "-", i)
				}
				_, err := s.Commit(t.Context(), message("c", "ann", id, "ann", "bob"))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2*each-each/10, q.kept())
	require.Equal(t, 1_000-2*q.kept(), q.left(t))
}

func TestLeaveIsNeverRefusedAndJoinsAre(t *testing.T) {
	d := newDeployment(t)
	q := newTariff(quota.Policy{Rate: 1, Burst: 2})
	s := d.charged(t, q)
	_, err := s.Join(t.Context(), change("g", "1", "ann", "eve"))
	require.NoError(t, err)
	_, err = s.Join(t.Context(), change("g", "2", "bob"))
	require.ErrorIs(t, err, quota.ErrExceeded)
	_, err = s.Commit(t.Context(), groupMessage("g", "eve", "3"))
	require.ErrorIs(t, err, quota.ErrExceeded)
	res, err := s.Leave(t.Context(), change("g", "4", "eve"))
	require.NoError(t, err)
	require.EqualValues(t, 1, res.MemberCount)
	q.clock.set(q.clock.Now().Add(2 * time.Second))
	_, err = s.Commit(t.Context(), groupMessage("g", "ann", "5"))
	require.ErrorIs(t, err, quota.ErrExceeded, "the leave is paid first")
}

// TestWaitingHoldsUpNobody: a message that waits for its quota has not got the
// turn; what was committed before is answered, and a leave goes ahead. When its
// caller goes away, nothing of it is left.
func TestWaitingHoldsUpNobody(t *testing.T) {
	d := newDeployment(t)
	q := newTariff(quota.Policy{Rate: 1, Burst: 4, MaxDelay: time.Hour})
	s := d.charged(t, q)
	_, err := s.Join(t.Context(), change("g", "1", "ann", "eve"))
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), groupMessage("g", "ann", "2"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, groupMessage("g", "ann", "3"))
		ended <- err
	}()
	<-q.waits
	again, err := s.Commit(t.Context(), groupMessage("g", "ann", "2"))
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	_, err = s.Leave(t.Context(), change("g", "4", "eve"))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Equal(t, 3, q.kept())
	info, err := s.Group(t.Context(), mailbox.Group{Tenant: "acme", ID: "g"})
	require.NoError(t, err)
	require.EqualValues(t, 3, info.ConversationSeq)
}

// TestMessageThatHasWaitedIsCommittedOnce: also when its repetition waits beside
// it.
func TestMessageThatHasWaitedIsCommittedOnce(t *testing.T) {
	d := newDeployment(t)
	q := newTariff(quota.Policy{Rate: 1_000, Burst: 2, MaxDelay: time.Minute})
	s := d.charged(t, q)
	_, err := s.Commit(t.Context(), message("c", "ann", "0", "ann", "bob"))
	require.NoError(t, err)
	const callers = 4
	fresh := make(chan bool, callers)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			res, err := s.Commit(t.Context(), message("c", "ann", "1", "ann", "bob"))
			if err != nil || res.ConversationSeq != 2 {
				t.Error(res, err)
			}
			fresh <- !res.Duplicate
		})
	}
	wg.Wait()
	close(fresh)
	n := 0
	for f := range fresh {
		if f {
			n++
		}
	}
	require.Equal(t, 1, n)
	require.Equal(t, 2, q.kept())
}
