package acceptance_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/workflows"
)

// TestTemporalDownAtStart: large dispatches are delivered by the shard itself
// until Temporal comes, and with it from then on.
func TestTemporalDownAtStart(t *testing.T) {
	s := start(t, t.TempDir(), smallLarge(30*time.Second))
	users := crowd()
	s.members("g", users)
	var sent []string
	for range 3 {
		d, m := s.post("g", users[0])
		s.through(d)
		sent = append(sent, m.MessageId)
	}
	s.everyMailbox(users, sent...)
	s.withTemporal()
	// Just after the connection a start may still be refused: the namespace is new
	// to a part of the server. The shard then appends that one itself as well.
	began := time.Now()
	for s.visible(s.Temporal(), fmt.Sprintf("WorkflowType = '%s'", workflows.DispatchType)) < 1 {
		require.Less(t, time.Since(began), patience, "%d large dispatches, none of them a workflow", len(sent))
		d, m := s.post("g", users[0])
		s.through(d)
		sent = append(sent, m.MessageId)
	}
	s.everyMailbox(users, sent...)
}

// TestTemporalKilledMidway kills the server while chunks of a large dispatch are
// under way, claimed and failing: single chats and other large dispatches go on,
// and when a server is back, which has forgotten everything, the rest is
// delivered too.
func TestTemporalKilledMidway(t *testing.T) {
	s := start(t, t.TempDir(), smallLarge(3*time.Second))
	port, err := freeport.Get()
	require.NoError(t, err)
	if testing.Short() {
		t.Skip("starts a server: not in -short")
	}
	o := localtemporal.Options{Port: port, UIPort: localtemporal.NoUI}
	server, err := localtemporal.Start(s.ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	s.connect(server.Address, server.Namespace)
	users := crowd()
	s.members("g", users)

	d := s.nextDispatch("g")
	hangs := s.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Chunk(d, 4, 0)})
	fails := s.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Chunk(d, 12, 0)})
	_, first := s.post("g", users[0])
	await(t, "the hang", hangs.Hit())
	await(t, "the failure", fails.Hit())
	p, err := os.FindProcess(server.Pid())
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	<-server.Done()

	peer := usersIn("y", 1, 1, lane(50))[0]
	chat := s.chat("y", peer)
	s.passed(50, s.row(0, dispatchID("y", chat.ConversationSeq, chat.MessageId)).Seq)
	second, again := s.post("g", users[0])
	for l := range mailbox.Lane(mailbox.LaneCount) {
		if l != 4 && l != 12 {
			s.passed(l, s.row(0, second).Seq)
		}
	}
	require.Less(t, s.Shard(0).W(4), s.row(0, d).Seq)
	require.Less(t, s.Shard(0).W(12), s.row(0, d).Seq)
	s.until("both chunks are degraded", func() bool { return s.Shard(0).Status(false).Slow == 2 })
	s.store.HealAll()
	server, err = localtemporal.Start(s.ctx, o) // on the same port, with nothing of before
	require.NoError(t, err)
	s.through(second)
	s.everyMailbox(users, first.MessageId, again.MessageId)
	require.Equal(t, []string{"MESSAGE " + chat.MessageId}, s.mailboxOf(peer))
}

// TestWorkflowEndedByHand: a DispatchWorkflow that is terminated or cancelled
// while chunks are unmarked ends no obligation: before an activity had the
// chunk's turn, while it has it, and when the chunk is in the slow-retry queue.
func TestWorkflowEndedByHand(t *testing.T) {
	for _, how := range []string{"Terminated", "Cancelled"} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%sSlow%v", how, slow), func(t *testing.T) {
				turn := 30 * time.Second
				if slow {
					turn = time.Second
				}
				o := smallLarge(turn)
				tune := o.tune
				o.tune = func(x *ingest.Options) { tune(x); x.SlowAttach = 3 * time.Second }
				s := start(t, t.TempDir(), o).withTemporal()
				users := crowd()
				s.members("g", users)
				d := s.nextDispatch("g")
				var faults []*faulty.Injected
				for _, l := range []mailbox.Lane{3, 12} { // a lane with a child, and a shared one
					faults = append(faults, s.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Chunk(d, l, 0)}))
				}
				_, m := s.post("g", users[0])
				for _, f := range faults {
					await(t, "the fault", f.Hit())
				}
				if slow {
					s.until("both lanes are slow", func() bool { return s.Shard(0).Status(false).Slow == 2 })
				}
				end := func(id string) {
					if how == "Terminated" {
						_ = s.Temporal().TerminateWorkflow(s.ctx, id, "", "by hand")
					} else {
						_ = s.Temporal().CancelWorkflow(s.ctx, id, "")
					}
				}
				end(workflows.DispatchID(d, 0))
				s.until("the dispatch is closed", func() bool {
					return s.visible(s.Temporal(), fmt.Sprintf("WorkflowType = '%s' AND LanewayDispatch = '%s' AND ExecutionStatus = '%s'", workflows.DispatchType, d, map[string]string{"Terminated": "Terminated", "Cancelled": "Canceled"}[how])) == 1
				})
				// And its children with it.
				for _, w := range s.running(d) {
					end(w)
				}
				for _, f := range faults {
					f.Heal()
				}
				s.through(d)
				s.everyMailbox(users, m.MessageId)
			})
		}
	}
}

// running lists the LaneWorkflows of a dispatch.
func (s *system) running(d mailbox.DispatchID) []string {
	s.t.Helper()
	var ids []string
	it, err := s.Temporal().ListWorkflow(s.ctx, listRequest(fmt.Sprintf("WorkflowType = '%s' AND LanewayDispatch = '%s' AND ExecutionStatus = 'Running'", workflows.LaneType, d)))
	require.NoError(s.t, err)
	for _, x := range it.GetExecutions() {
		ids = append(ids, x.GetExecution().GetWorkflowId())
	}
	return ids
}
