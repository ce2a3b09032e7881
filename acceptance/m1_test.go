package acceptance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
)

const (
	largeMembers = 100_000
	// touched is the first lane that the large group does not live in.
	touched = mailbox.Lane(48)
	// releaseGate is the P99 that W may lag on lanes which no large dispatch
	// touches (design 6.7).
	releaseGate = 2 * time.Second
)

// chats are single chats whose recipients' W is measured: from the commit's
// answer until a pull shows the message, which it does when W has passed it.
type chats struct {
	s    *system
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration
	more chan struct{} // closed with each message
	err  error
}

// startChats lets a message flow every 10 ms or so in each of some pairs.
func (s *system) startChats(name string, users []string) *chats {
	ctx, stop := context.WithCancel(s.ctx)
	c := &chats{s: s, stop: stop, more: make(chan struct{})}
	for i := range len(users) / 2 {
		c.wg.Go(func() {
			if err := c.pair(ctx, fmt.Sprintf("%s-%d", name, i), users[2*i], users[2*i+1]); err != nil && ctx.Err() == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.err = err
				close(c.more)
				c.more = make(chan struct{})
			}
		})
	}
	s.t.Cleanup(c.end)
	return c
}

func (c *chats) pair(ctx context.Context, conv, from, to string) error {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	changed, stop := c.s.Shard(0).Watch(laneOf(to, 1))
	defer stop()
	cursor := ""
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
		r, err := c.s.Client.Commit(ctx, &lanewayv1.CommitRequest{
			TenantId: tenant, ConversationId: conv, ConversationKind: singleKind, SenderId: from, RecipientIds: []string{from, to}, ClientMessageId: fmt.Sprint(n),
		})
		if err != nil {
			return err
		}
		committed := time.Now()
		for seen := false; !seen; {
			p, err := c.s.Client.Pull(ctx, &lanewayv1.PullRequest{TenantId: tenant, UserId: to, Cursor: cursor})
			if err != nil {
				return err
			}
			cursor = p.Cursor
			for _, e := range p.Entries {
				seen = seen || e.MessageId == r.MessageId
			}
			if seen {
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
		}
		c.mu.Lock()
		c.took = append(c.took, time.Since(committed))
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
	}
}

// fresh forgets what was measured so far.
func (c *chats) fresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = nil
}

// collect waits for n measured messages and returns all there are.
func (c *chats) collect(n int) latencies {
	c.s.t.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		took, more, err := slices.Clone(c.took), c.more, c.err
		c.mu.Unlock()
		require.NoError(c.s.t, err)
		if len(took) >= n {
			slices.Sort(took)
			return took
		}
		select {
		case <-more:
		case <-timeout:
			c.s.t.Fatalf("%d single chats got through, want %d: somebody waits for the large group", len(took), n)
		}
	}
}

func (c *chats) end() {
	c.stop()
	c.wg.Wait()
}

type latencies []time.Duration // ascending

func (l latencies) p(percent int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(len(l)*percent/100, len(l)-1)]
}

func (l latencies) String() string {
	return fmt.Sprintf("%d messages, P50 %v, P99 %v, max %v", len(l), l.p(50).Round(100*time.Microsecond), l.p(99).Round(100*time.Microsecond), l.p(100).Round(100*time.Microsecond))
}

// gateFor is the release gate, except where even an idle node is slow: on a busy
// machine or under the race detector the processor is what messages wait for,
// and the gate follows what they take there without any large dispatch.
func gateFor(idle latencies) time.Duration { return max(releaseGate, 10*idle.p(99)) }

// TestM1SingleChatsDoNotWaitForALargeGroup: a 100,000-member dispatch expands in
// a shard while single chats go to users of the same shard whose lanes it does
// not touch: their W does not wait for it, P99 at most 2 s. Then one touched lane
// is made to stand still: everybody else goes on. An implementation that moves
// all 64 lanes together shows none of these messages, and fails.
func TestM1SingleChatsDoNotWaitForALargeGroup(t *testing.T) {
	s := start(t, t.TempDir(), setup{}).withTemporal()
	group := usersIn("member", largeMembers, 1, func(l mailbox.Lane) bool { return l < touched })
	began := time.Now()
	s.members("large", group)
	t.Logf("import of %d members and its event: %v", len(group), time.Since(began).Round(time.Millisecond))

	untouched := s.startChats("untouched", usersIn("single", 32, 1, func(l mailbox.Lane) bool { return l >= touched }))
	idle := untouched.collect(300)
	t.Logf("untouched lanes, idle:         %v", idle)
	gate := gateFor(idle)
	same := s.startChats("touched", usersIn("other", 8, 1, func(l mailbox.Lane) bool { return l < touched }))
	same.collect(4)

	// Measured: messages that were committed while the large dispatch expanded.
	expected := s.nextDispatch("large")
	untouched.fresh()
	same.fresh()
	began = time.Now()
	d, _ := s.post("large", group[0])
	require.Equal(t, expected, d)
	row := s.row(0, d)
	require.Equal(t, largeMembers, row.Manifest.Entries)
	require.Len(t, row.Manifest.Lanes, int(touched))
	require.GreaterOrEqual(t, row.Manifest.Entries, s.WorkflowMinEntries(), "it is a workflow")
	for l := range touched {
		s.passed(l, row.Seq)
	}
	took := time.Since(began)
	during, beside := untouched.collect(30), same.collect(1)
	t.Logf("untouched lanes, while a dispatch to %d expands in %v: %v; P99 is %.1f times the idle one", largeMembers, took.Round(time.Millisecond), during, float64(during.p(99))/float64(max(idle.p(99), 1)))
	t.Logf("touched lanes (no aim):        %v", beside)
	require.LessOrEqual(t, during.p(99), gate)

	// Now one touched lane stands still for as long as the singles are measured.
	const stuck = mailbox.Lane(5)
	same.end()
	d = s.nextDispatch("large")
	fault := s.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Chunk(d, stuck, 0)})
	posted, _ := s.post("large", group[0])
	require.Equal(t, d, posted)
	await(t, "the fault", fault.Hit())
	row = s.row(0, d)
	untouched.fresh()
	hanging := untouched.collect(300)
	t.Logf("untouched lanes, lane %d stands still: %v", stuck, hanging)
	require.LessOrEqual(t, hanging.p(99), gate)
	require.Less(t, s.Shard(0).W(stuck), row.Seq, "W of the lane must not pass what is not there")
	for l := range mailbox.Lane(mailbox.LaneCount) {
		if l != stuck {
			s.passed(l, row.Seq)
		}
	}
	require.Less(t, s.Shard(0).W(stuck), row.Seq)
	untouched.end()
	fault.Heal()
	s.through(d)

	// And everybody has both messages, once.
	for i := 0; i < len(group); i += 997 {
		require.Len(t, s.mailboxOf(group[i]), 3, group[i])
	}
	for _, u := range usersIn("single", 4, 1, func(l mailbox.Lane) bool { return l >= touched }) {
		for _, l := range s.mailboxOf(u) {
			require.NotContains(t, l, "MEMBERSHIP")
		}
	}
}
