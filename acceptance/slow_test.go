package acceptance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/workflows"
)

// smallLarge makes dispatches of a few hundred entries large ones.
func smallLarge(turn time.Duration) setup {
	return setup{
		config: func(c *config.Config) {
			c.WorkflowMinEntries, c.LaneChildMinEntries, c.ClaimTimeout, c.Turn = 100, 40, time.Second, turn
		},
		tune: func(o *ingest.Options) { o.BatchTimeout, o.SlowAttach = 500*time.Millisecond, 5*time.Second },
	}
}

// crowd is a group with lanes that get workflows of their own (3 and 4) and
// lanes that share an activity (10 to 19).
func crowd() []string {
	users := append(usersIn("a", 60, 1, lane(3)), usersIn("b", 60, 1, lane(4))...)
	for l := mailbox.Lane(10); l < 20; l++ {
		users = append(users, usersIn("c", 3, 1, lane(l))...)
	}
	return users
}

// TestSlowRetryOfALargeDispatch: a chunk of a large dispatch that fails (five
// times) or hangs beyond its turn goes to the slow-retry queue. Its lane's W
// stays, later messages of the lane are appended and invisible, all other lanes
// go on, Temporal shows it as slow, and it heals by itself.
func TestSlowRetryOfALargeDispatch(t *testing.T) {
	for _, c := range []struct {
		name string
		mode faulty.Mode
		turn time.Duration
		lane mailbox.Lane
	}{
		{"FailsFiveTimes", faulty.Fail, time.Minute, 3},
		{"FailsInASmallLane", faulty.Fail, 2 * time.Second, 12},
		{"HangsBeyondItsTurn", faulty.HangHard, 2 * time.Second, 3},
		{"HangsInASmallLane", faulty.Hang, 2 * time.Second, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, t.TempDir(), smallLarge(c.turn)).withTemporal()
			users := crowd()
			s.members("g", users)
			d := s.nextDispatch("g")
			fault := s.store.Inject(faulty.Fault{Op: faulty.Append, Mode: c.mode, Match: faulty.Chunk(d, c.lane, 0)})
			_, sent := s.post("g", users[0])
			await(t, "the fault", fault.Hit())
			seq := s.row(0, d).Seq
			late := usersIn("late", 1, 1, lane(c.lane))[0]
			after := s.chat("late", late)
			s.allBut(c.lane, seq)

			slow := fmt.Sprintf("LanewayState = '%s' AND ExecutionStatus = 'Running' AND LanewayDispatch = '%s' AND LanewayLane = %d", workflows.StateSlow, d, c.lane)
			s.until("Temporal shows the slow lane", func() bool { return s.visible(s.Temporal(), slow) > 0 })
			if c.mode == faulty.Fail && c.turn == time.Minute {
				require.GreaterOrEqual(t, fault.Hits(), 5)
			}
			s.until("the shard shows it", func() bool { return s.Shard(0).Status(true).Lanes[c.lane].State == "slow" })
			s.until("the later message is appended", func() bool { return s.laid(late) == 1 })
			require.Less(t, s.Shard(0).W(c.lane), seq)
			require.Empty(t, s.mailboxOf(late), "what is above W is invisible")
			second, again := s.post("g", users[0])
			s.allBut(c.lane, s.row(0, second).Seq)

			fault.Heal()
			s.through(second)
			s.everyMailbox(users, sent.MessageId, again.MessageId)
			require.Equal(t, []string{"MESSAGE " + after.MessageId}, s.mailboxOf(late))
			s.until("nothing runs any more", func() bool { return s.visible(s.Temporal(), "ExecutionStatus = 'Running'") == 0 })
		})
	}
}

// allBut waits until W of all lanes but one has passed a seq.
func (s *system) allBut(stuck mailbox.Lane, seq mailbox.Seq) {
	s.t.Helper()
	for l := range mailbox.Lane(mailbox.LaneCount) {
		if l != stuck {
			s.passed(l, seq)
		}
	}
	require.Less(s.t, s.Shard(0).W(stuck), seq)
}

// everyMailbox holds each member's mailbox against the news of the import and
// the messages since.
func (s *system) everyMailbox(users []string, messages ...string) {
	s.t.Helper()
	for _, u := range users {
		got := s.mailboxOf(u)
		require.Len(s.t, got, 1+len(messages), u)
		require.Contains(s.t, got[0], "MEMBERSHIP")
		for i, m := range messages {
			require.Equal(s.t, "MESSAGE "+m, got[i+1], u)
		}
	}
}

// TestSlowRetryOfASingleChat: the same for a chunk of the hot path, which gets a
// LaneWorkflow in slow mode.
func TestSlowRetryOfASingleChat(t *testing.T) {
	for name, mode := range map[string]faulty.Mode{"Fails": faulty.Fail, "Hangs": faulty.HangHard} {
		t.Run(name, func(t *testing.T) {
			s := start(t, t.TempDir(), smallLarge(2*time.Second)).withTemporal()
			stuck, peer := usersIn("x", 1, 1, lane(7))[0], usersIn("y", 1, 1, lane(40))[0]
			neighbour := usersIn("z", 1, 1, lane(7))[0]
			first := s.chat("xy", stuck, peer)
			s.through(dispatchID("xy", first.ConversationSeq, first.MessageId))
			fault := s.store.Inject(faulty.Fault{Op: faulty.Append, Mode: mode, Match: faulty.Lane(7), Times: 0})
			second := s.chat("xy", stuck, peer)
			d := dispatchID("xy", second.ConversationSeq, second.MessageId)
			await(t, "the fault", fault.Hit())
			s.allBut(7, s.row(0, d).Seq)
			require.Equal(t, []string{"MESSAGE " + first.MessageId, "MESSAGE " + second.MessageId}, s.mailboxOf(peer))
			slow := fmt.Sprintf("WorkflowType = '%s' AND LanewayState = '%s' AND ExecutionStatus = 'Running' AND LanewayLane = 7", workflows.LaneType, workflows.StateSlow)
			s.until("Temporal shows the slow lane", func() bool { return s.visible(s.Temporal(), slow) > 0 })
			require.Equal(t, []string{"MESSAGE " + first.MessageId}, s.mailboxOf(stuck))
			third := s.chat("z", neighbour)
			s.allBut(7, s.row(0, dispatchID("z", third.ConversationSeq, third.MessageId)).Seq)

			fault.Heal()
			s.through(dispatchID("z", third.ConversationSeq, third.MessageId))
			require.Equal(t, []string{"MESSAGE " + first.MessageId, "MESSAGE " + second.MessageId}, s.mailboxOf(stuck))
			require.Equal(t, []string{"MESSAGE " + third.MessageId}, s.mailboxOf(neighbour))
		})
	}
}
