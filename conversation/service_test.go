package conversation

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

func TestCommitSingle(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	r := message("c", "ann", "m1", "ann", "bob")
	r.MessageID = "mine"
	first, err := s.Commit(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "mine", first.MessageID)
	require.Equal(t, uint64(1), first.ConversationSeq)
	require.False(t, first.Duplicate)

	second, err := s.Commit(t.Context(), message("c", "bob", "m1")) // another sender's m1; same recipients
	require.NoError(t, err)
	require.Equal(t, uint64(2), second.ConversationSeq)
	require.Equal(t, deriveMessageID(r.Conversation, 2), second.MessageID)

	again, err := s.Commit(t.Context(), r)
	require.NoError(t, err)
	first.Duplicate = true
	require.Equal(t, first, again)

	recs := d.outbox.records(t, r.Conversation)
	require.Len(t, recs, 2)
	require.Equal(t, []string{"ann", "bob"}, recs[1].GetUsers().GetUserIds())
	require.Equal(t, uint64(1), recs[0].GetFencingEpoch())
	require.Equal(t, []byte("body of m1"), recs[0].GetBody())
	require.True(t, proto.Equal(messageToAll[0], recs[0].GetEvents()[0]))
	require.Equal(t, first.CommittedAt, recs[0].GetCommittedAtMs())
	require.Equal(t, uint32(1), recs[0].GetSchemaVersion())
}

func TestClientMessageIDReusedForOtherContent(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	_, err := s.Commit(t.Context(), message("c", "ann", "m1", "ann", "bob"))
	require.NoError(t, err)
	other := message("c", "ann", "m1", "ann", "bob")
	other.Body = []byte("something else")
	_, err = s.Commit(t.Context(), other)
	require.ErrorIs(t, err, ErrClientMessageReused)
	_, err = s.Join(t.Context(), change("g", "j", "ann"))
	require.NoError(t, err)
	_, err = s.Leave(t.Context(), change("g", "j", "ann"))
	require.ErrorIs(t, err, ErrClientMessageReused, "a leave is not the join it shares its id with")
	require.Len(t, d.outbox.records(t, other.Conversation), 1)
}

func TestRequestsAreChecked(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	event := func(k logv1.EventKind, payload int, users ...string) []*logv1.Event {
		return []*logv1.Event{{Kind: k, Payload: make([]byte, payload), UserIds: users}}
	}
	for name, c := range map[string]struct {
		change func(*CommitRequest)
		want   error
	}{
		"tenant":            {func(r *CommitRequest) { r.Conversation.Tenant = "" }, ErrInvalidRequest},
		"conversation":      {func(r *CommitRequest) { r.Conversation.ID = "a\x00" }, mailbox.ErrInvalidID},
		"sender":            {func(r *CommitRequest) { r.Sender = strings.Repeat("x", 129) }, ErrInvalidRequest},
		"client message id": {func(r *CommitRequest) { r.ClientMessageID = "" }, ErrInvalidRequest},
		"message id":        {func(r *CommitRequest) { r.MessageID = "\xff" }, ErrInvalidRequest},
		"kind":              {func(r *CommitRequest) { r.Kind = 0 }, ErrInvalidRequest},
		"no recipients":     {func(r *CommitRequest) { r.Recipients = nil }, ErrInvalidRequest},
		"17 recipients":     {func(r *CommitRequest) { r.Recipients = manyUsers(17) }, ErrInvalidRequest},
		"recipient twice":   {func(r *CommitRequest) { r.Recipients = []string{"ann", "ann"} }, ErrInvalidRequest},
		"bad recipient":     {func(r *CommitRequest) { r.Recipients = []string{"ann", ""} }, ErrInvalidRequest},
		"group recipients":  {func(r *CommitRequest) { r.Kind = group }, ErrInvalidRequest},
		"body":              {func(r *CommitRequest) { r.Body = make([]byte, 64<<10+1) }, ErrTooLarge},
		"payload":           {func(r *CommitRequest) { r.Events = event(1, 1025) }, ErrTooLarge},
		"membership event":  {func(r *CommitRequest) { r.Events = event(3, 0) }, ErrInvalidRequest},
		"unknown event":     {func(r *CommitRequest) { r.Events = event(9, 0) }, ErrInvalidRequest},
		"nil event":         {func(r *CommitRequest) { r.Events = []*logv1.Event{nil} }, ErrInvalidRequest},
		"mentioned user":    {func(r *CommitRequest) { r.Events = event(2, 0, "a\n") }, ErrInvalidRequest},
		"many mentions":     {func(r *CommitRequest) { r.Events = event(2, 0, manyUsers(513)...) }, ErrTooLarge},
		"mentions in all":   {func(r *CommitRequest) { r.Events = repeated(4, event(2, 0, manyUsers(512)...)[0]) }, ErrTooLarge},
		"many events":       {func(r *CommitRequest) { r.Events = make([]*logv1.Event, 17) }, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := message("c", "ann", "m1", "ann", "bob")
			c.change(&r)
			_, err := s.Commit(t.Context(), r)
			require.ErrorIs(t, err, c.want)
		})
	}
	_, revision, err := d.store.Head(t.Context(), mailbox.Conversation{Tenant: "acme", ID: "c"})
	require.NoError(t, err)
	require.Zero(t, revision, "nothing was written")

	largest := message("c", "ann", "m1", manyUsers(16)...)
	largest.Body = make([]byte, 64<<10)
	largest.Events = repeated(3, event(2, 1024, manyUsers(512)...)[0])
	_, err = s.Commit(t.Context(), largest)
	require.NoError(t, err)
}

func repeated(n int, e *logv1.Event) []*logv1.Event {
	out := make([]*logv1.Event, n)
	for i := range out {
		out[i] = e
	}
	return out
}

func TestKindsAreNotMixed(t *testing.T) {
	s := newDeployment(t).service(t)
	_, err := s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err)
	_, err = s.Join(t.Context(), change("g", "j1", "ann"))
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), groupMessage("c", "ann", "m2"))
	require.ErrorIs(t, err, ErrKindMismatch)
	_, err = s.Commit(t.Context(), message("g", "ann", "m2", "bob"))
	require.ErrorIs(t, err, ErrKindMismatch)
	_, err = s.Join(t.Context(), change("c", "j2", "ann"))
	require.ErrorIs(t, err, ErrKindMismatch)
	_, err = s.Group(t.Context(), mailbox.Group{Tenant: "acme", ID: "c"})
	require.ErrorIs(t, err, ErrKindMismatch)
}

func TestGroupLife(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	g := mailbox.Group{Tenant: "acme", ID: "g"}
	_, err := s.Commit(t.Context(), groupMessage("g", "ann", "m0"))
	require.ErrorIs(t, err, ErrGroupUnknown)
	_, err = s.Leave(t.Context(), change("g", "l0", "ann"))
	require.ErrorIs(t, err, ErrGroupUnknown)
	_, err = s.Group(t.Context(), g)
	require.ErrorIs(t, err, ErrGroupUnknown)

	join, err := s.Join(t.Context(), change("g", "j1", "ann", "bob"))
	require.NoError(t, err)
	require.Equal(t, MembershipResult{Generation: 1, Version: 1, ConversationSeq: 1, CommittedAt: join.CommittedAt, MemberCount: 2, Changed: 2}, join)
	_, err = s.Commit(t.Context(), groupMessage("g", "ann", "m1"))
	require.NoError(t, err)
	leave, err := s.Leave(t.Context(), change("g", "l1", "bob", "cyd"))
	require.NoError(t, err)
	require.Equal(t, MembershipResult{Generation: 1, Version: 2, ConversationSeq: 3, CommittedAt: leave.CommittedAt, MemberCount: 1, Changed: 1}, leave)
	rejoin, err := s.Join(t.Context(), change("g", "j2", "bob", "ann"))
	require.NoError(t, err)
	require.Equal(t, uint32(1), rejoin.Changed)
	_, err = s.Leave(t.Context(), change("g", "l2", "ann", "bob"))
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), groupMessage("g", "ann", "m2"))
	require.ErrorIs(t, err, ErrGroupEmpty)
	_, err = s.Join(t.Context(), change("g", "j3", "ann"))
	require.NoError(t, err, "an empty group can fill again")

	info, err := s.Group(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, uint64(6), info.ConversationSeq)
	require.Equal(t, uint64(5), info.Version)
	require.Equal(t, uint32(4), info.SlotHighWater, "ann, bob, bob again, ann again")

	recs := d.outbox.records(t, mailbox.Conversation(g))
	require.Len(t, recs, 6)
	cache := d.cache()
	audience := func(i int) map[string]uint32 {
		a := recs[i].GetGroup()
		m := d.members(t, cache, mailbox.GroupVersion{Group: g, Generation: a.GetGeneration(), Version: a.GetMembershipVersion()}, mailbox.Digest(a.GetManifestDigest()))
		require.Len(t, m, int(a.GetMemberCount()))
		return m
	}
	require.Equal(t, map[string]uint32{"ann": 0, "bob": 1}, audience(0), "a join goes to the joiners too")
	require.Equal(t, map[string]uint32{"ann": 0, "bob": 1}, audience(1))
	require.Equal(t, map[string]uint32{"ann": 0, "bob": 1}, audience(2), "a leave goes to the leaver too")
	require.Equal(t, map[string]uint32{"ann": 0, "bob": 2}, audience(3), "a rejoin takes a new slot")
	require.Equal(t, map[string]uint32{"ann": 0, "bob": 2}, audience(4))
	require.Equal(t, map[string]uint32{"ann": 3}, audience(5))
	var payload logv1.MembershipPayload
	require.NoError(t, proto.Unmarshal(recs[2].GetEvents()[0].GetPayload(), &payload))
	require.True(t, proto.Equal(&logv1.MembershipPayload{Kind: logv1.MembershipKind_MEMBERSHIP_KIND_LEAVE, FirstSubject: "bob", Count: 1}, &payload))
	require.Equal(t, logv1.EventKind_EVENT_KIND_MEMBERSHIP, recs[2].GetEvents()[0].GetKind())
	require.Equal(t, uint64(3), recs[2].GetMembershipChange().GetChanges()[0].GetLeaveSeq())
}

// A request that changed nothing keeps that answer, also when it would change
// something by now.
func TestChangingNothingIsAnAnswerToo(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	_, err := s.Join(t.Context(), change("g", "j1", "ann"))
	require.NoError(t, err)
	nothing, err := s.Join(t.Context(), change("g", "j2", "ann"))
	require.NoError(t, err)
	require.Equal(t, MembershipResult{Generation: 1, Version: 1, MemberCount: 1}, nothing)
	_, err = s.Leave(t.Context(), change("g", "l1", "ann"))
	require.NoError(t, err)
	again, err := s.Join(t.Context(), change("g", "j2", "ann"))
	require.NoError(t, err)
	nothing.Duplicate = true
	require.Equal(t, nothing, again)
	require.Len(t, d.outbox.records(t, mailbox.Conversation{Tenant: "acme", ID: "g"}), 2)
}

func TestImportRefusesBadUsersByPosition(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	_, err := s.Import(t.Context(), change("g", "i1", "ann", "bob", "ann", "", "cyd", "bob"))
	require.ErrorIs(t, err, ErrInvalidRequest)
	var users *UsersError
	require.ErrorAs(t, err, &users)
	require.Equal(t, 3, users.Total)
	require.Equal(t, []int{3, 4, 6}, []int{users.Problems[0].Position, users.Problems[1].Position, users.Problems[2].Position})
	require.ErrorContains(t, err, `position 3: user "ann" is at position 1 already`)
	_, err = s.Import(t.Context(), change("g", "i1"))
	require.ErrorIs(t, err, ErrInvalidRequest)
	_, err = s.Group(t.Context(), mailbox.Group{Tenant: "acme", ID: "g"})
	require.ErrorIs(t, err, ErrGroupUnknown, "nothing was applied")
}

func TestLargeChangesGoToABlob(t *testing.T) {
	d := newDeployment(t)
	d.limits.InlineChangeBytes = 100
	d.limits.GroupMembers = 50
	s := d.service(t)
	_, err := s.Import(t.Context(), change("g", "i1", manyUsers(40)...))
	require.NoError(t, err)
	_, err = s.Leave(t.Context(), change("g", "l1", "user-000001"))
	require.NoError(t, err)
	recs := d.outbox.records(t, mailbox.Conversation{Tenant: "acme", ID: "g"})
	m := recs[0].GetMembershipChange()
	require.Empty(t, m.GetChanges())
	b, err := d.blobs.Get(t.Context(), m.GetBlob(), mailbox.Digest(m.GetBlobDigest()), 1<<20)
	require.NoError(t, err)
	var list logv1.SlotChanges
	require.NoError(t, proto.Unmarshal(b, &list))
	require.Len(t, list.GetChanges(), 40)
	require.Len(t, recs[1].GetMembershipChange().GetChanges(), 1)
	_, err = s.Import(t.Context(), change("g", "i2", manyUsers(60)...))
	require.ErrorIs(t, err, ErrTooManyMembers)
}

func TestFencingEpochs(t *testing.T) {
	d := newDeployment(t)
	s := d.service(t)
	epoch := func(id string, e uint64) error {
		r := message("c", "ann", id, "bob")
		r.FencingEpoch = e
		_, err := s.Commit(t.Context(), r)
		return err
	}
	require.NoError(t, epoch("m1", 0))
	require.NoError(t, epoch("m2", 7))
	require.ErrorIs(t, epoch("m3", 6), ErrStaleFencingEpoch)
	require.NoError(t, epoch("m4", 0))
	require.NoError(t, epoch("m2", 6), "what was answered once is answered again")
	var got []uint64
	for _, r := range d.outbox.records(t, mailbox.Conversation{Tenant: "acme", ID: "c"}) {
		got = append(got, r.GetFencingEpoch())
	}
	require.Equal(t, []uint64{1, 7, 7}, got)
}

func TestCommittedAtNeverGoesBack(t *testing.T) {
	d := newDeployment(t)
	at := time.UnixMilli(1_700_000_000_000)
	c := &clock{now: at}
	cfg := d.config()
	cfg.Now = c.Now
	s, err := New(cfg)
	require.NoError(t, err)
	commit := func(id string) int64 {
		r, err := s.Commit(t.Context(), message("c", "ann", id, "bob"))
		require.NoError(t, err)
		return r.CommittedAt
	}
	require.Equal(t, at.UnixMilli(), commit("m1"))
	c.set(at.Add(-time.Minute))
	require.Equal(t, at.UnixMilli(), commit("m2"))
	c.set(at.Add(time.Second))
	require.Equal(t, at.Add(time.Second).UnixMilli(), commit("m3"))
	// A clock that was hours ahead must not stamp records into quarantine.
	c.set(at.Add(-3 * time.Hour))
	require.Equal(t, at.Add(-3*time.Hour).UnixMilli(), commit("m4"))
}

func TestOutboxDownThenUp(t *testing.T) {
	d := newDeployment(t)
	down := &failing{outbox: d.outbox}
	cfg := d.config()
	cfg.Publisher = down
	s, err := New(cfg)
	require.NoError(t, err)
	first, err := s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err)
	down.set(errors.New("no leader"))
	_, err = s.Commit(t.Context(), message("c", "ann", "m2", "bob"))
	require.ErrorIs(t, err, ErrNotPublished)
	_, err = s.Commit(t.Context(), message("c", "ann", "m3", "bob"))
	require.ErrorIs(t, err, ErrNotPublished, "nothing later is assigned")
	again, err := s.Commit(t.Context(), message("c", "ann", "m1", "bob"))
	require.NoError(t, err, "what was answered once is answered again, outbox or not")
	require.Equal(t, first.ConversationSeq, again.ConversationSeq)
	require.Error(t, s.Sweep(t.Context()))
	down.set(nil)
	require.NoError(t, s.Sweep(t.Context()))
	second, err := s.Commit(t.Context(), message("c", "ann", "m2", "bob"))
	require.NoError(t, err)
	require.Equal(t, uint64(2), second.ConversationSeq)
	require.True(t, second.Duplicate, "the sweeper finished it")
	third, err := s.Commit(t.Context(), message("c", "ann", "m3", "bob"))
	require.NoError(t, err)
	require.Equal(t, uint64(3), third.ConversationSeq)
}

func TestManyWritersOfOneConversation(t *testing.T) {
	d := newDeployment(t)
	a, b := d.service(t), d.service(t) // two processes
	_, err := a.Join(t.Context(), change("g", "j", "ann"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			s := a
			if w%2 == 0 {
				s = b
			}
			for i := range 10 {
				r := groupMessage("g", manyUsers(8)[w], manyUsers(10)[i])
				if _, err := s.Commit(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	check := newChecker(t, d)
	check.conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
	require.Equal(t, uint64(81), check.last)
}

func TestIdleStatesAreBounded(t *testing.T) {
	d := newDeployment(t)
	d.limits.CacheBytes = 8 << 10
	s := d.service(t)
	for _, c := range manyUsers(50) {
		_, err := s.Commit(t.Context(), message(c, "ann", "m1", "bob"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(s.states.all), 8)
	}
	for _, c := range manyUsers(50) {
		r, err := s.Commit(t.Context(), message(c, "ann", "m2", "bob"))
		require.NoError(t, err)
		require.Equal(t, uint64(2), r.ConversationSeq)
	}
}
