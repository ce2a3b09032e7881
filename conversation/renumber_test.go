package conversation

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

var roomG = mailbox.Group{Tenant: "acme", ID: "g"}

func renumberOf(token string) RenumberRequest { return RenumberRequest{Group: roomG, Token: token} }

// dueGroup is a group whose slots run far ahead of its members: ann and user-000001
// are left of it.
func dueGroup(t *testing.T, s *Service) {
	_, err := s.Import(t.Context(), change("g", "i1", append(manyUsers(20), "ann")...)) // in a blob, where the limits say so
	require.NoError(t, err)
	_, err = s.Leave(t.Context(), change("g", "l1", append(manyUsers(1), manyUsers(20)[2:]...)...))
	require.NoError(t, err)
}

// renumberScript passes through a renumbering, with records of both generations.
func renumberScript() []request {
	return []request{
		changeRequest("import", change("g", "i1", manyUsers(20)...)),
		changeRequest("leave", change("g", "l1", manyUsers(12)...)),
		commitRequest(groupMessage("g", "ann", "m1")),
		renumberRequest("g", "t1"),
		changeRequest("join", change("g", "j1", "user-000003", "user-000015")), // one rejoins, one is there
		commitRequest(groupMessage("g", "ann", "m2")),
		renumberRequest("g", "t2"),
		changeRequest("leave", change("g", "l2", "user-000014")),
	}
}

func TestEveryStepOfARenumberingCanFail(t *testing.T) {
	everyStepFails(t, renumberScript(), 8, 45)
}

// From closing to the compare-and-set nobody writes; whatever was answered before
// is answered all the same; from then on everything goes on in the new
// generation, for those who were told to come again too.
func TestAClosedGroupTakesNoWritesAndAnswersRepetitions(t *testing.T) {
	d := newDeployment(t)
	s, other := d.service(t), d.service(t)
	dueGroup(t, s)
	before, err := s.Commit(t.Context(), groupMessage("g", "ann", "m1"))
	require.NoError(t, err)
	nothing, err := s.Join(t.Context(), change("g", "j0", "ann"))
	require.NoError(t, err)
	info, err := s.Group(t.Context(), roomG)
	require.NoError(t, err)
	require.True(t, info.RenumberingDue)
	require.Nil(t, info.Closing)

	closing, done, err := s.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	require.Nil(t, done)
	require.GreaterOrEqual(t, closing.Deadline.Sub(closing.Since), closeBase)
	info, err = other.Group(t.Context(), roomG)
	require.NoError(t, err)
	require.Equal(t, &closing, info.Closing)

	for _, p := range []*Service{s, other, d.service(t)} {
		for _, r := range []request{
			commitRequest(groupMessage("g", "ann", "m2")),
			changeRequest("join", change("g", "j1", "bob")),
			changeRequest("join", change("g", "j2", "ann")), // would change nothing
			changeRequest("leave", change("g", "l2", "ann")),
			changeRequest("import", change("g", "i2", manyUsers(3)...)),
		} {
			_, err := r.do(t.Context(), p)
			require.ErrorIs(t, err, ErrGroupRenumbering, r.id)
			var closed *RenumberingError
			require.ErrorAs(t, err, &closed)
			require.Equal(t, retryBase+2*retryMember, closed.RetryAfter())
		}
		again, err := p.Commit(t.Context(), groupMessage("g", "ann", "m1"))
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, before.ConversationSeq, again.ConversationSeq)
		unchanged, err := p.Join(t.Context(), change("g", "j0", "ann"))
		require.NoError(t, err)
		require.Equal(t, nothing.Version, unchanged.Version)
		_, _, err = p.CloseForRenumbering(t.Context(), renumberOf("t2"))
		require.ErrorIs(t, err, ErrGroupRenumbering, "another renumbering waits its turn")
	}

	made, err := other.RenumberGroup(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	require.Equal(t, info.Generation+1, made.Generation)
	require.Equal(t, info.Version+1, made.Version)
	require.Equal(t, before.ConversationSeq+1, made.ConversationSeq)
	again, err := s.RenumberGroup(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	require.Equal(t, made, again)
	_, done, err = s.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	require.Equal(t, &made, done, "and does not close the group again")
	done, err = s.ReopenGroup(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	require.Equal(t, &made, done, "too late to take it back")

	info, err = s.Group(t.Context(), roomG)
	require.NoError(t, err)
	require.Nil(t, info.Closing)
	require.False(t, info.RenumberingDue)
	require.Equal(t, uint32(2), info.SlotHighWater)
	after, err := s.Commit(t.Context(), groupMessage("g", "ann", "m2"))
	require.NoError(t, err)
	require.Equal(t, made.ConversationSeq+1, after.ConversationSeq)
	joined, err := other.Join(t.Context(), change("g", "j1", "bob"))
	require.NoError(t, err)
	require.Equal(t, uint32(1), joined.Changed)
	k := newChecker(t, d)
	k.conversation(mailbox.Conversation(roomG))
	starts, err := GenerationStarts(t.Context(), d.store, roomG)
	require.NoError(t, err)
	require.Equal(t, []uint64{made.ConversationSeq}, starts)
}

func TestRenumberingNeedsToBeDueOrForced(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	_, _, err := s.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.ErrorIs(t, err, ErrGroupUnknown)
	_, err = s.Join(t.Context(), change("g", "j1", "ann", "bob"))
	require.NoError(t, err)
	_, _, err = s.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.ErrorIs(t, err, ErrRenumberingNotDue)
	_, err = s.RenumberGroup(t.Context(), renumberOf("t1"))
	require.ErrorIs(t, err, ErrRenumberingLost, "nobody closed it")
	_, err = s.Commit(t.Context(), groupMessage("g", "ann", "m1"))
	require.NoError(t, err)
	forced := renumberOf("t1")
	forced.Force = true
	_, _, err = s.CloseForRenumbering(t.Context(), forced)
	require.NoError(t, err)
	_, err = s.RenumberGroup(t.Context(), forced)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err)
	forced.Group.ID = "c"
	_, _, err = s.CloseForRenumbering(t.Context(), forced)
	require.ErrorIs(t, err, ErrKindMismatch)
}

// A group that its renumbering left closed does not stay closed: the first write
// after the deadline opens it, or the sweeper does, or whoever closed it.
func TestAClosingIsTakenBack(t *testing.T) {
	for _, how := range []string{"write", "sweep", "reopen", "another closes it"} {
		t.Run(how, func(t *testing.T) {
			d := newDeployment(t)
			now := &clock{now: time.Now()}
			d.now = now.Now
			s := d.service(t)
			dueGroup(t, s)
			closing, _, err := s.CloseForRenumbering(t.Context(), renumberOf("t1"))
			require.NoError(t, err)
			_, err = s.Join(t.Context(), change("g", "j0", "ann"))
			require.ErrorIs(t, err, ErrGroupRenumbering)
			require.NoError(t, s.Sweep(t.Context()))
			info, err := s.Group(t.Context(), roomG)
			require.NoError(t, err)
			require.NotNil(t, info.Closing, "the sweeper does not open it before its time")
			other := d.service(t)
			if how == "reopen" {
				done, err := other.ReopenGroup(t.Context(), renumberOf("t1"))
				require.NoError(t, err)
				require.Nil(t, done)
			} else {
				now.set(closing.Deadline)
			}
			switch how {
			case "sweep":
				require.NoError(t, other.Sweep(t.Context()))
				info, err := other.Group(t.Context(), roomG)
				require.NoError(t, err)
				require.Nil(t, info.Closing)
			case "another closes it":
				_, _, err := other.CloseForRenumbering(t.Context(), renumberOf("t2"))
				require.NoError(t, err)
				_, err = other.RenumberGroup(t.Context(), renumberOf("t2"))
				require.NoError(t, err)
			}
			_, err = s.Commit(t.Context(), groupMessage("g", "ann", "m1"))
			require.NoError(t, err)
			_, err = s.RenumberGroup(t.Context(), renumberOf("t1"))
			require.ErrorIs(t, err, ErrRenumberingLost)
			_, err = s.ReopenGroup(t.Context(), renumberOf("t1"))
			require.NoError(t, err, "nothing of its own is left to take back")
			k := newChecker(t, d)
			k.conversation(mailbox.Conversation(roomG))
		})
	}
}

// Closing and the members read meanwhile do not outlive a head that moved: a
// renumbering that was opened by its deadline leaves out nobody who joined then.
func TestARenumberingOfAnOldHeadIsNotApplied(t *testing.T) {
	d := newDeployment(t)
	now := &clock{now: time.Now()}
	d.now = now.Now
	s := d.service(t)
	dueGroup(t, s)
	closing, _, err := s.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	r := renumberOf("t1")
	p, err := s.prepareRenumbering(t.Context(), &r)
	require.NoError(t, err)
	require.NotNil(t, p)
	now.set(closing.Deadline)
	_, err = s.Join(t.Context(), change("g", "j1", "bob"))
	require.NoError(t, err)
	_, _, err = s.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	st, err := s.turn(t.Context(), mailbox.Conversation(roomG))
	require.NoError(t, err)
	_, err = s.planRenumbering(st, &r, r.key(), p)
	s.states.release(st)
	require.ErrorIs(t, err, ErrRenumberingLost)
	made, err := s.RenumberGroup(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, uint32(3), made.MemberCount)
	newChecker(t, d).conversation(mailbox.Conversation(roomG))
}

// A store that comes back without the renumbering, or without everything, gets
// the generation back from its record, and gives no slot or version out twice.
func TestARenumberingOutlivesALostTail(t *testing.T) {
	for _, lose := range []int{1, 3, 5, 8, 1 << 30} {
		t.Run(fmt.Sprint(lose), func(t *testing.T) {
			d := newLossy(t, t.Context())
			defer d.close()
			s := d.service(t)
			require.NoError(t, s.Recover(t.Context()))
			var answers []answer
			script := renumberScript()
			for _, r := range script {
				a, err := r.do(t.Context(), s)
				require.NoError(t, err)
				answers = append(answers, a)
			}
			d.restart(lose)
			s = d.service(t)
			require.NoError(t, s.Recover(t.Context()))
			for i, r := range script {
				a, err := r.do(t.Context(), s)
				require.NoError(t, err)
				require.Equal(t, answers[i], a, "request %d", i)
			}
			joined, err := s.Join(t.Context(), change("g", "j9", "cyd"))
			require.NoError(t, err)
			require.Equal(t, uint64(3), joined.Generation)
			k := newChecker(t, d.deployment)
			k.conversation(mailbox.Conversation(roomG))
			require.Equal(t, uint64(9), k.last)
			starts, err := GenerationStarts(t.Context(), d.store, roomG)
			require.NoError(t, err)
			require.Equal(t, []uint64{4, 7}, starts)
		})
	}
}

// A renumbering's record lands behind the marker of a recovery: it never was, and
// the next one gives its generation out.
func TestARenumberingThatDoesNotCountIsMadeAnew(t *testing.T) {
	d := newLossy(t, t.Context())
	defer d.close()
	p := startProcess(t, d.deployment, nil)
	require.NoError(t, p.serve.Recover(t.Context()))
	dueGroup(t, p.serve)
	require.NoError(t, p.serve.Beat(t.Context()))
	_, _, err := p.serve.CloseForRenumbering(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	written := d.server.written()
	p.next = atPublish(crashLate)
	_, err = p.serve.RenumberGroup(t.Context(), renumberOf("t1"))
	require.ErrorIs(t, err, errCrashed)

	d.restart(d.server.written() - written) // the closing survives, the decision does not
	s := d.service(t)
	require.NoError(t, s.Recover(t.Context()))
	d.outbox.land(1)
	_, err = s.Join(t.Context(), change("g", "j1", "bob"))
	require.ErrorIs(t, err, ErrGroupRenumbering, "still closed, by who may go on")
	made, err := s.RenumberGroup(t.Context(), renumberOf("t1"))
	require.NoError(t, err)
	require.Equal(t, uint64(2), made.Generation)
	_, err = s.Join(t.Context(), change("g", "j1", "bob"))
	require.NoError(t, err)
	c := mailbox.Conversation(roomG)
	_, stale := d.outbox.counted(t, c)
	require.Equal(t, 1, stale)
	newChecker(t, d.deployment).conversation(c)
	require.True(t, records.IsRenumbering(d.outbox.records(t, c)[2]))
}

func TestRenumberingIsProposedOnceWhenItBecomesDue(t *testing.T) {
	d := newDeployment(t)
	cfg := d.config()
	proposed := 0
	cfg.RenumberingDue = func() { proposed++ }
	s, err := New(cfg)
	require.NoError(t, err)
	_, err = s.Import(t.Context(), change("g", "i1", manyUsers(1200)...))
	require.NoError(t, err)
	_, err = s.Leave(t.Context(), change("g", "l1", manyUsers(800)...))
	require.NoError(t, err)
	require.Zero(t, proposed, "400 of 1200 slots are in use")
	for range 2 { // the second is a repetition
		_, err = s.Leave(t.Context(), change("g", "l2", manyUsers(1000)[800:]...))
		require.NoError(t, err)
		require.Equal(t, 1, proposed)
	}
	_, err = s.Leave(t.Context(), change("g", "l3", manyUsers(1100)[1000:]...))
	require.NoError(t, err)
	require.Equal(t, 1, proposed, "it was due before")
}

// TestNoGroupStaysClosedForLong: a renumbering that is terminated by hand leaves
// its group closed until the deadline, however many slots it has given out.
func TestNoGroupStaysClosedForLong(t *testing.T) {
	require.Equal(t, 30*time.Second+200*time.Millisecond+100*time.Millisecond, closedFor(1_000, 5_000))
	require.Equal(t, 8*time.Minute, closedFor(10, math.MaxUint32))
}
