package acceptance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// held is a store in which a renumbering can be stopped while it reads the
// members: the only one who reads a directory from its beginning once the shards
// have read it.
type held struct {
	mailbox.Store
	mu      sync.Mutex
	reached chan struct{} // nil: let everybody pass
	release chan struct{}
}

func (h *held) hold() (reached <-chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reached, h.release = make(chan struct{}), make(chan struct{})
	return h.reached, sync.OnceFunc(func() { close(h.release) })
}

// Directory implements mailbox.Store.
func (h *held) Directory(ctx context.Context, g mailbox.Group, generation uint64, shard mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	h.mu.Lock()
	reached, release := h.reached, h.release
	if from > 0 || reached == nil {
		h.mu.Unlock()
		return h.Store.Directory(ctx, g, generation, shard, from, f)
	}
	select {
	case <-reached:
	default:
		close(reached)
	}
	h.mu.Unlock()
	select {
	case <-release:
		return h.Store.Directory(ctx, g, generation, shard, from, f)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ledger is what a group's members must have, by what was answered.
type ledger struct {
	mu     sync.Mutex
	events map[uint64]string // by conversation_seq: "KIND message"
	from   map[string]uint64 // the join of each user
	until  map[string]uint64 // the leave, if it left
}

func newLedger() *ledger {
	return &ledger{events: map[uint64]string{}, from: map[string]uint64{}, until: map[string]uint64{}}
}

func (l *ledger) message(r *lanewayv1.CommitResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[r.ConversationSeq] = "MESSAGE " + r.MessageId
}

func (l *ledger) change(group string, seq uint64, leave bool, users []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[seq] = "MEMBERSHIP " + conversation.DerivedMessageID(mailbox.Conversation{Tenant: tenant, ID: group}, seq)
	for _, u := range users {
		if leave {
			l.until[u] = seq
		} else {
			l.from[u] = seq
		}
	}
}

func (l *ledger) want(user string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var seqs []uint64
	for seq := range l.events {
		if until, left := l.until[user]; seq >= l.from[user] && (!left || seq <= until) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	out := []string{}
	for _, seq := range seqs {
		out = append(out, l.events[seq])
	}
	return out
}

// check waits until every mailbox holds as much as it must, and compares it:
// nothing is lost, nothing comes twice or to somebody else.
func (l *ledger) check(s *system) {
	s.t.Helper()
	for u := range l.from {
		want := l.want(u)
		var got []string
		s.until("the mailbox of "+u, func() bool { got = s.mailboxOf(u); return len(got) >= len(want) })
		require.Equal(s.t, want, got, "the mailbox of %s", u)
	}
}

// dueRoom makes a group whose slots run far ahead of its members: of 40 who came
// the first 6 are left.
func dueRoom(s *system, l *ledger) (group string, members []string) {
	s.t.Helper()
	group = "room"
	users := named("u", 40)
	joined, err := s.Client.Join(s.ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: group, UserIds: users, ActorId: "admin", ClientMessageId: "join"})
	require.NoError(s.t, err)
	l.change(group, joined.ConversationSeq, false, users)
	_, m := s.post(group, "u0")
	l.message(m)
	left, err := s.Client.Leave(s.ctx, &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: group, UserIds: users[6:], ActorId: "admin", ClientMessageId: "leave"})
	require.NoError(s.t, err)
	l.change(group, left.ConversationSeq, true, users[6:])
	_, m = s.post(group, "u0")
	l.message(m)
	l.check(s)
	g, err := s.Client.Group(s.ctx, tenant, group)
	require.NoError(s.t, err)
	require.True(s.t, g.RenumberingDue)
	return group, users[:6]
}

// renumbered waits for the end of a renumbering that succeeds.
func (s *system) renumbered(group, run string) *lanewayv1.RenumberingStatus {
	s.t.Helper()
	var r *lanewayv1.RenumberingStatus
	s.until("the group is renumbered", func() bool {
		var err error
		r, err = s.Client.Renumbering(s.ctx, tenant, group, run)
		return err == nil && r.State != "running"
	})
	require.Equal(s.t, "completed", r.State, r.Failure)
	return r
}

// TestAGroupIsRenumberedUnderTraffic: while a group is closed, writers are told
// so and come again; what they write then is delivered once, after the
// renumbering, to the members of then. Old versions are void for new records and
// good for old ones.
func TestAGroupIsRenumberedUnderTraffic(t *testing.T) {
	var store *held
	s := start(t, t.TempDir(), setup{shards: 2, wrap: func(inner mailbox.Store) mailbox.Store {
		store = &held{Store: inner}
		return store
	}}).withTemporal()
	l := newLedger()
	group, members := dueRoom(s, l)
	g := mailbox.Group{Tenant: tenant, ID: group}
	before, err := s.Commits().Group(s.ctx, g)
	require.NoError(t, err)

	reached, release := store.hold()
	defer release()
	started, err := s.Client.Renumber(s.ctx, tenant, group, false)
	require.NoError(t, err)
	again, err := s.Client.Renumber(s.ctx, tenant, group, false)
	require.NoError(t, err)
	require.Equal(t, started.RunId, again.RunId, "there is one at a time")
	await(t, "the group is closed", reached)

	_, err = s.Commits().Commit(s.ctx, conversation.CommitRequest{
		Conversation: mailbox.Conversation(g), Kind: groupKind, Sender: "u1", ClientMessageID: "closed",
	})
	require.ErrorIs(t, err, conversation.ErrGroupRenumbering)
	_, err = s.Commits().Join(s.ctx, conversation.MembershipRequest{Group: g, Users: []string{"late"}, Actor: "u1", ClientMessageID: "closed"})
	require.ErrorIs(t, err, conversation.ErrGroupRenumbering)
	repeated, err := s.Client.Leave(s.ctx, &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: group, UserIds: named("u", 40)[6:], ActorId: "admin", ClientMessageId: "leave"})
	require.NoError(t, err, "what was answered is answered again")
	require.Equal(t, before.Version, repeated.MembershipVersion)
	shown, err := s.Client.Group(s.ctx, tenant, group)
	require.NoError(t, err)
	require.Positive(t, shown.ClosedSinceMs)

	patient, err := client.New(s.URL(), client.WithRetries(1000))
	require.NoError(t, err)
	defer patient.Close()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 5 {
				r, err := patient.Commit(s.ctx, &lanewayv1.CommitRequest{
					TenantId: tenant, ConversationId: group, ConversationKind: groupKind, SenderId: members[w], ClientMessageId: fmt.Sprint("during-", w, "-", i),
				})
				if err != nil {
					t.Errorf("message %d of %s: %v", i, members[w], err)
					return
				}
				l.message(r)
			}
		})
	}
	writers.Go(func() {
		r, err := patient.Join(s.ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: group, UserIds: []string{"late"}, ActorId: "u1", ClientMessageId: "late"})
		if err != nil {
			t.Errorf("join: %v", err)
			return
		}
		l.change(group, r.ConversationSeq, false, []string{"late"})
	})
	refused := func() (sum float64) {
		families, err := s.Metrics().Registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() != "laneway_api_requests_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetValue() == "GROUP_RENUMBERING" {
						sum += m.GetCounter().GetValue()
					}
				}
			}
		}
		return sum
	}
	s.until("every writer was refused", func() bool { return refused() >= 5 })
	release()
	made := s.renumbered(group, started.RunId)
	writers.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d members in generation %d; closed to writes for %d ms, held up by the test; %.0f calls were told to come again", made.MemberCount, made.Generation, made.ClosedMs, refused())
	require.Equal(t, uint64(2), made.Generation)
	require.Equal(t, before.Version+1, made.MembershipVersion)
	require.Equal(t, before.ConversationSeq+1, made.ConversationSeq, "nothing was written between closing and renumbering")
	require.Equal(t, uint32(6), made.MemberCount)
	for seq := range l.events {
		require.NotEqual(t, made.ConversationSeq, seq, "its conversation_seq is nobody's")
	}
	after, err := s.Commits().Group(s.ctx, g)
	require.NoError(t, err)
	require.Equal(t, uint32(7), after.SlotHighWater)
	require.False(t, after.RenumberingDue)
	l.check(s)

	// A writer of another kind that is late with the old version: what belongs
	// before the renumbering is delivered to whom it was frozen for, what does not
	// goes into quarantine.
	old := &logv1.GroupAudience{
		GroupId: group, Generation: 1, MembershipVersion: before.Version, ManifestDigest: before.ManifestDigest[:],
		SlotHighWater: before.SlotHighWater, MemberCount: before.MemberCount, TargetShards: before.TargetShards,
	}
	for seq, message := range map[uint64]string{made.ConversationSeq: "void", made.ConversationSeq - 1: "late"} {
		s.publish(&logv1.OutboxRecord{
			ConversationId: group, ConversationKind: groupKind, MessageId: message, ConversationSeq: seq,
			Audience: &logv1.OutboxRecord_Group{Group: old}, Events: []*logv1.Event{{Kind: messageKind}},
		})
	}
	s.until("the void record is in quarantine", func() bool {
		q, _, err := s.Client.Quarantined(s.ctx, 0, 10)
		require.NoError(t, err)
		return len(q) == 1 && q[0].Reason == "VERSION_VOIDED" && q[0].NotRetryable != ""
	})
	for u := range l.from {
		want := l.want(u)
		if slices.Contains(members, u) {
			want = append(want, "MESSAGE late")
		}
		s.until("the late record is delivered to "+u, func() bool { return len(s.mailboxOf(u)) == len(want) })
		require.Equal(t, want, s.mailboxOf(u), "the mailbox of %s", u)
	}
}

// TestANodeThatDiesWhileAGroupIsClosed: the next one goes on with the
// renumbering, and the group takes writes again.
func TestANodeThatDiesWhileAGroupIsClosed(t *testing.T) {
	var store *held
	s := start(t, t.TempDir(), setup{shards: 2, wrap: func(inner mailbox.Store) mailbox.Store {
		store = &held{Store: inner}
		return store
	}}).withTemporal()
	l := newLedger()
	group, _ := dueRoom(s, l)
	reached, release := store.hold()
	defer release()
	started, err := s.Client.Renumber(s.ctx, tenant, group, false)
	require.NoError(t, err)
	await(t, "the group is closed", reached)
	s = s.restart()
	_, err = s.Commits().Join(s.ctx, conversation.MembershipRequest{
		Group: mailbox.Group{Tenant: tenant, ID: group}, Users: []string{"late"}, Actor: "u1", ClientMessageID: "late",
	})
	require.ErrorIs(t, err, conversation.ErrGroupRenumbering, "the closing outlives the node")
	s.withTemporal()
	made := s.renumbered(group, started.RunId)
	require.Equal(t, uint64(2), made.Generation)
	_, m := s.post(group, "u1")
	l.message(m)
	l.check(s)
}

// TestACancelledRenumberingOpensTheGroup: by hand, while its members are read.
func TestACancelledRenumberingOpensTheGroup(t *testing.T) {
	var store *held
	s := start(t, t.TempDir(), setup{shards: 2, wrap: func(inner mailbox.Store) mailbox.Store {
		store = &held{Store: inner}
		return store
	}})
	l := newLedger()
	_, err := s.Client.Renumber(s.ctx, tenant, "room", false)
	require.Error(t, err, "there is no such group")
	group, _ := dueRoom(s, l)
	impatient, err := client.New(s.URL(), client.WithRetries(0))
	require.NoError(t, err)
	defer impatient.Close()
	_, err = impatient.Renumber(s.ctx, tenant, group, false)
	require.ErrorContains(t, err, "ENGINE_UNAVAILABLE")
	s.withTemporal()
	reached, release := store.hold()
	defer release()
	started, err := s.Client.Renumber(s.ctx, tenant, group, false)
	require.NoError(t, err)
	await(t, "the group is closed", reached)
	require.NoError(t, s.Client.CancelRenumbering(s.ctx, tenant, group))
	s.until("the renumbering has ended", func() bool {
		r, err := s.Client.Renumbering(s.ctx, tenant, group, started.RunId)
		require.NoError(t, err)
		return r.State == "canceled"
	})
	_, m := s.post(group, "u1")
	l.message(m)
	l.check(s)
	g, err := s.Client.Group(s.ctx, tenant, group)
	require.NoError(t, err)
	require.Equal(t, uint64(1), g.Generation)
	require.Zero(t, g.ClosedSinceMs)
	release()
	again, err := s.Client.Renumber(s.ctx, tenant, group, false)
	require.NoError(t, err)
	s.renumbered(group, again.RunId)
	_, m = s.post(group, "u1")
	l.message(m)
	l.check(s)
}

// TestARenumberedGroupComesBackOnAnEmptyStore: a Redis that has lost everything;
// heads, both generations and every mailbox come back from the logs alone.
func TestARenumberedGroupComesBackOnAnEmptyStore(t *testing.T) {
	server := testservers.StartRedis(t)
	s := start(t, t.TempDir(), setup{shards: 2, config: func(c *config.Config) { c.Store.URL = server.URL() }})
	s.open()
	l := newLedger()
	group, _ := dueRoom(s, l)
	g := mailbox.Group{Tenant: tenant, ID: group}
	r := conversation.RenumberRequest{Group: g, Token: "by-hand"}
	for i := range 2 {
		_, _, err := s.Commits().CloseForRenumbering(s.ctx, r)
		require.NoError(t, err)
		made, err := s.Commits().RenumberGroup(s.ctx, r)
		require.NoError(t, err)
		require.Equal(t, uint64(i+2), made.Generation)
		user := fmt.Sprint("new", i)
		joined, err := s.Client.Join(s.ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: group, UserIds: []string{user}, ActorId: "admin", ClientMessageId: user})
		require.NoError(t, err)
		l.change(group, joined.ConversationSeq, false, []string{user})
		_, m := s.post(group, user)
		l.message(m)
		r.Token, r.Force = "again", true
	}
	l.check(s)
	before, err := s.Commits().Group(s.ctx, g)
	require.NoError(t, err)
	s.stop()
	server.Kill()
	server.TruncateAOF(server.AOFSize())
	server.Restart()
	next := start(t, s.dir, s.setup)
	next.sent = s.sent
	next.open()
	after, err := next.Commits().Group(next.ctx, g)
	require.NoError(t, err)
	require.Equal(t, before, after)
	l.check(next)
	_, m := next.post(group, "u1")
	l.message(m)
	l.check(next)
}

// open waits until a store that may have lost its tail takes commits.
func (s *system) open() {
	s.t.Helper()
	s.until("commits are open", func() bool { return s.Commits().Closed() == nil })
}
