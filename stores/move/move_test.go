package move_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/metamorphic"
	"github.com/laneway/laneway/stores/metamorphic/entrants"
	"github.com/laneway/laneway/stores/metamorphic/naive"
	"github.com/laneway/laneway/stores/move"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/stores/storetest"
)

var deployment = mailbox.Deployment{ShardCount: 4, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}

// fixture is a deployment with a past, and an empty store to move it to.
type fixture struct {
	t        *testing.T
	clock    *storetest.Clock
	from, to mailbox.Store
	found    []move.Difference
}

func newFixture(t *testing.T, steps int, from, to storetest.Open) *fixture {
	t.Helper()
	clock := storetest.NewClock()
	c := metamorphic.Config(clock)
	f := &fixture{t: t, clock: clock}
	source := from(t, c)
	require.NoError(t, source.Store.EnsureDeployment(t.Context(), deployment))
	f.from = metamorphic.Play(t, metamorphic.Generate(3, steps), clock, source)
	f.to = to(t, c).Store
	settle(t, f.from)
	return f
}

// settle writes the commit state as a node does that serves the store.
func settle(t *testing.T, s mailbox.Store) {
	t.Helper()
	_, revision, err := s.LoadCommitState(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.CompareAndSetCommitState(t.Context(), revision, mailbox.CommitState{Incarnation: s.Incarnation(), Epoch: 3, Positions: []int64{7, 8}, Markers: []int64{1, 2}}))
}

func (f *fixture) verify(o move.Options) (move.Summary, error) {
	f.t.Helper()
	f.found = nil
	o.Deployment, o.RetentionDays, o.Clock = deployment, 7, f.clock.Now
	o.Report = func(d move.Difference) { f.found = append(f.found, d) }
	return move.Verify(f.t.Context(), f.from, f.to, o)
}

func (f *fixture) must(o move.Options) move.Summary {
	f.t.Helper()
	s, err := f.verify(o)
	require.NoError(f.t, err)
	require.EqualValues(f.t, len(f.found), s.Differences)
	return s
}

// kinds counts the differences by kind.
func (f *fixture) kinds() map[string]int {
	out := map[string]int{}
	for _, d := range f.found {
		out[d.Kind]++
	}
	return out
}

// moves copies a deployment and checks that nothing is left to do.
func moves(t *testing.T, steps int, from, to storetest.Open) {
	t.Helper()
	f := newFixture(t, steps, from, to)
	s := f.must(move.Options{})
	require.False(t, s.Same())
	kinds := f.kinds()
	for _, kind := range []string{
		move.KindDeployment, move.KindEntry, move.KindBounds, move.KindShard, move.KindWatermark, move.KindDispatch, move.KindFence, move.KindOutboxFence,
		move.KindHead, move.KindCommitted, move.KindVersion, move.KindBitmap, move.KindDirectory, move.KindCommitState,
	} {
		require.NotZero(t, kinds[kind], "the history has some of every kind: %s", kind)
	}
	_, err := f.to.Deployment(t.Context())
	require.ErrorIs(t, err, mailbox.ErrNotFound, "comparing writes nothing")

	s = f.must(move.Options{Repair: true})
	t.Logf("%+v", s)
	for _, d := range f.found {
		require.True(t, d.Repaired, "%s", d)
	}
	require.True(t, s.Same())
	require.Positive(t, s.Entries)
	s = f.must(move.Options{})
	require.Empty(t, f.found)
	require.Zero(t, s.Differences)

	again := *f
	again.from, again.to = f.to, f.from
	back, err := again.verify(move.Options{})
	require.NoError(t, err)
	for _, d := range again.found {
		// The next owner's epoch is larger than both.
		require.Equal(t, "epoch", d.Name, "%s", d)
	}
	require.Equal(t, s.Entries, back.Entries, "the target has nothing that the source lacks")
	f.goesOn()
}

// goesOn checks that a new owner works on in the target.
func (f *fixture) goesOn() {
	f.t.Helper()
	for n := range mailbox.Shard(deployment.ShardCount) {
		was, err := f.from.LoadShard(f.t.Context(), n)
		require.NoError(f.t, err)
		own, err := f.to.Fence(f.t.Context(), mailbox.FenceRequest{Shard: n, LogEpoch: was.Epoch, Token: mailbox.Token{9}, Owner: "node", Lease: time.Minute})
		require.NoError(f.t, err, "nobody has the lease")
		require.Greater(f.t, own.Epoch, was.Epoch)
		is, err := f.to.LoadShard(f.t.Context(), n)
		require.NoError(f.t, err)
		require.Equal(f.t, was.Watermarks, is.Watermarks)
		to := is.Watermarks
		to.F++
		to.W[5], to.Floor[5] = to.F, to.F
		require.NoError(f.t, f.to.CommitWatermarks(f.t.Context(), own, &is.Watermarks, &to))
	}
}

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

func steps() int {
	if testing.Short() {
		return 2000
	}
	return 6000
}

func TestPebbleMovesToPebble(t *testing.T) { moves(t, steps(), entrants.Pebble, entrants.Pebble) }

// newNaive opens a store whose content tests can reach into.
func newNaive(t *testing.T, c storetest.Config) *storetest.Subject {
	return metamorphic.Model.Open(t, c)
}

// TestMovedStoreAnswersAsTheSource: what users and shards see is the same, by the
// model's judgement.
func TestMovedStoreAnswersAsTheSource(t *testing.T) { moves(t, steps(), newNaive, entrants.Pebble) }

// TestRedisMovesToScylla: as a deployment does that has grown out of one server.
func TestRedisMovesToScylla(t *testing.T) {
	moves(t, 1500, entrants.Redis(t), entrants.Scylla(t))
}

// TestScyllaMovesToRedis: and back.
func TestScyllaMovesToRedis(t *testing.T) {
	moves(t, 1200, entrants.Scylla(t), entrants.Redis(t))
}

// TestCopyThatWasCutShortIsBegunAgain: at any point, also when it held shards of
// the target.
func TestCopyThatWasCutShortIsBegunAgain(t *testing.T) {
	f := newFixture(t, 1500, entrants.Pebble, entrants.Pebble)
	for reports := 1; ; reports *= 3 {
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		_, err := move.Verify(ctx, f.from, f.to, move.Options{Deployment: deployment, RetentionDays: 7, Clock: f.clock.Now, Repair: true, Report: func(move.Difference) {
			if seen++; seen == reports {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	f.must(move.Options{Repair: true})
	f.must(move.Options{})
	require.Empty(t, f.found)
}

// TestSecondCopyTakesWhatCameSince: a first copy while nodes serve makes the last
// one short, whatever changed between.
func TestSecondCopyTakesWhatCameSince(t *testing.T) {
	clock := storetest.NewClock()
	c := metamorphic.Config(clock)
	source := entrants.Pebble(t, c)
	require.NoError(t, source.Store.EnsureDeployment(t.Context(), deployment))
	h := metamorphic.Generate(5, 4000)
	f := &fixture{t: t, clock: clock, to: entrants.Pebble(t, c).Store}
	for len(h.Steps) > 0 {
		n := min(len(h.Steps), 800)
		part := &metamorphic.History{Steps: h.Steps[:n]}
		h.Steps = h.Steps[n:]
		source.Store = metamorphic.Play(t, part, clock, source)
		f.from = source.Store
		settle(t, f.from)
		f.must(move.Options{Repair: true, Online: len(h.Steps) > 0})
	}
	f.must(move.Options{Repair: true})
	f.must(move.Options{})
	require.Empty(t, f.found)
	f.goesOn()
}

// TestSecondCopyAfterATakeover: the target's epoch follows the source's, which was
// one more.
func TestSecondCopyAfterATakeover(t *testing.T) {
	f := newFixture(t, 300, entrants.Pebble, entrants.Pebble)
	for range 3 {
		f.must(move.Options{Repair: true})
		f.must(move.Options{})
		require.Empty(t, f.found)
		own, err := f.from.Fence(t.Context(), mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{4}, Owner: "node", Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, f.from.ReleaseLease(t.Context(), own))
		own, err = f.from.Fence(t.Context(), mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{5}, Owner: "node", Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, f.from.ReleaseLease(t.Context(), own))
	}
}

// TestDamageIsFound: every kind of content that the target has otherwise, or
// alone, or not at all, is told, and what cannot be repaired is not called
// repaired.
func TestDamageIsFound(t *testing.T) {
	ctx := t.Context()
	for name, damage := range map[string]func(f *fixture) string{
		"entry only in the target": func(f *fixture) string {
			appendOne(f, f.to, "stranger", 77)
			return move.KindEntry
		},
		"trim only in the target": func(f *fixture) string {
			require.NoError(f.t, f.to.TruncateBefore(ctx, mailbox.User{Tenant: "tenant", ID: "u"}, mailbox.Seq(50<<48)))
			return move.KindBounds
		},
		"head moved on": func(f *fixture) string {
			c := mailbox.Conversation{Tenant: "tenant", ID: "new"}
			require.NoError(f.t, f.to.CompareAndSetHead(ctx, c, 0, []byte("x"), true))
			return move.KindHead
		},
		"committed row only in the target": func(f *fixture) string {
			require.NoError(f.t, f.to.PutCommitted(ctx, mailbox.Conversation{Tenant: "tenant", ID: "c1"}, "s", "only here", []byte("x")))
			return move.KindCommitted
		},
		"committed row with other content": func(f *fixture) string {
			c := mailbox.Conversation{Tenant: "tenant", ID: "c1"}
			require.NoError(f.t, f.from.PutCommitted(ctx, c, "s", "both", []byte("x")))
			require.NoError(f.t, f.to.PutCommitted(ctx, c, "s", "both", []byte("y")))
			return move.KindCommitted
		},
		"version only in the target": func(f *fixture) string {
			v := mailbox.GroupVersion{Group: mailbox.Group{Tenant: "tenant", ID: "group"}, Generation: 1, Version: 1 << 40}
			require.NoError(f.t, f.to.PutVersion(ctx, mailbox.VersionWrite{GroupVersion: v, Manifest: []byte("x")}))
			return move.KindVersion
		},
		"dispatch only in the target": func(f *fixture) string {
			own, err := f.to.Fence(ctx, mailbox.FenceRequest{Shard: 2, Token: mailbox.Token{3}, Owner: "node"})
			require.NoError(f.t, err)
			p := mailbox.DispatchProgress{Dispatch: mailbox.DispatchID{1, 2}, Seq: mailbox.Seq(1<<48 | 999_999)}
			require.NoError(f.t, f.to.Begin(ctx, own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}}))
			require.NoError(f.t, f.to.ReleaseLease(ctx, own))
			return move.KindDispatch
		},
		"W ahead": func(f *fixture) string {
			st, err := f.to.LoadShard(ctx, 2)
			require.NoError(f.t, err)
			own, err := f.to.Fence(ctx, mailbox.FenceRequest{Shard: 2, Token: mailbox.Token{3}, Owner: "node"})
			require.NoError(f.t, err)
			ahead := st.Watermarks
			ahead.F += 5
			ahead.W[1], ahead.Floor[1] = ahead.F, ahead.F
			require.NoError(f.t, f.to.CommitWatermarks(ctx, own, &st.Watermarks, &ahead))
			require.NoError(f.t, f.to.ReleaseLease(ctx, own))
			return move.KindWatermark
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 800, entrants.Pebble, entrants.Pebble)
			f.must(move.Options{Repair: true})
			kind := damage(f)
			s := f.must(move.Options{})
			require.False(t, s.Same())
			require.NotZero(t, f.kinds()[kind], "%v", f.found)
			f.must(move.Options{Repair: true})
			s = f.must(move.Options{})
			require.False(t, s.Same(), "what only the target has stays there, and is told")
			require.NotZero(t, f.kinds()[kind], "%v", f.found)
		})
	}
}

func appendOne(f *fixture, s mailbox.Store, user string, offset int64) {
	f.t.Helper()
	u := mailbox.User{Tenant: "tenant", ID: user}
	seq, err := mailbox.NewSeq(60, offset)
	require.NoError(f.t, err)
	tp, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{TenantID: u.Tenant, Seq: seq, MessageID: "m", SenderID: "s", ConversationID: "c", CreatedAt: f.clock.Now().UnixMilli()},
		[]mailbox.Event{{Type: mailbox.EventMessage, Payload: []byte("secret words")}})
	require.NoError(f.t, err)
	p := mailbox.Place(u, deployment.ShardCount)
	r := s.AppendBatch(f.t.Context(), []mailbox.ChunkAppend{{
		Ref: mailbox.ChunkRef{Shard: p.Shard, Lane: p.Lane, Seq: seq}, Template: tp, Recipients: []mailbox.Recipient{{User: user, Events: 1}},
	}})
	require.NoError(f.t, r[0].Err)
}

// TestLackingEntriesAreToldByPositionAndDigest: a difference names no content.
func TestLackingEntriesAreToldByPositionAndDigest(t *testing.T) {
	f := newFixture(t, 500, entrants.Pebble, entrants.Pebble)
	f.must(move.Options{Repair: true})
	appendOne(f, f.from, "somebody", 5)
	f.must(move.Options{})
	require.Len(t, f.found, 1)
	d := f.found[0]
	require.Equal(t, "somebody", d.User)
	require.Equal(t, "60:5", d.Seq)
	require.Equal(t, "MESSAGE", d.Name)
	require.Empty(t, d.To)
	require.NotContains(t, fmt.Sprint(f.found), "secret")
	require.True(t, strings.HasPrefix(d.String(), `entry of user "somebody" of tenant "tenant" MESSAGE at 60:5: `), d.String())
	require.True(t, strings.HasSuffix(d.String(), "in the source, nothing in the target"), d.String())
	f.must(move.Options{Users: []mailbox.User{{Tenant: "tenant", ID: "u"}}})
	require.Empty(t, f.found, "another user")
	s := f.must(move.Options{Users: []mailbox.User{{Tenant: "tenant", ID: "somebody"}}, Repair: true})
	require.True(t, s.Same())
	require.EqualValues(t, 1, s.Users)
	f.must(move.Options{})
	require.Empty(t, f.found)
}

// TestSampleIsOfTheSourcesUsers: as many as asked, none twice.
func TestSampleIsOfTheSourcesUsers(t *testing.T) {
	f := newFixture(t, 2000, entrants.Pebble, entrants.Pebble)
	s := f.must(move.Options{Sample: 5})
	require.EqualValues(t, 5, s.Users)
	var users []string
	for _, d := range f.found {
		if d.User != "" {
			users = append(users, d.User)
		}
	}
	slices.Sort(users)
	require.LessOrEqual(t, len(slices.Compact(users)), 5)
	require.EqualValues(t, 18, f.must(move.Options{Sample: 500}).Users, "there are no more")
}

// TestEntriesAboveWAreNotComparedWhileNodesServe: they may be on their way.
func TestEntriesAboveWAreNotComparedWhileNodesServe(t *testing.T) {
	f := newFixture(t, 500, entrants.Pebble, entrants.Pebble)
	f.must(move.Options{Repair: true})
	appendOne(f, f.from, "somebody", 5) // epoch 60 is above every W
	s := f.must(move.Options{Online: true, Settle: time.Millisecond})
	require.Empty(t, f.found)
	require.NotZero(t, s.Users)
}

// lagging is a target that gets an entry some looks later.
type lagging struct {
	*pebble.Store

	looks atomic.Int64
	late  func()
}

func (l *lagging) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	if q.User.ID == "somebody" && l.looks.Add(1) == 4 {
		l.late()
	}
	return l.Store.RangeScan(ctx, q)
}

// TestWhatIsOnItsWayWhileNodesServeIsNoDifference: and what never comes is one.
func TestWhatIsOnItsWayWhileNodesServeIsNoDifference(t *testing.T) {
	f := newFixture(t, 500, entrants.Pebble, entrants.Pebble)
	f.must(move.Options{Repair: true})
	appendOne(f, f.from, "somebody", 5)
	p := mailbox.Place(mailbox.User{Tenant: "tenant", ID: "somebody"}, deployment.ShardCount)
	own, err := f.from.Fence(t.Context(), mailbox.FenceRequest{Shard: p.Shard, Token: mailbox.Token{4}, Owner: "node", Lease: time.Minute})
	require.NoError(t, err)
	st, err := f.from.LoadShard(t.Context(), p.Shard)
	require.NoError(t, err)
	to := st.Watermarks
	to.F = mailbox.Seq(60<<48 | 5)
	to.W[p.Lane], to.Floor[p.Lane] = to.F, to.F
	require.NoError(t, f.from.CommitWatermarks(t.Context(), own, &st.Watermarks, &to))

	s := f.must(move.Options{Online: true, Settle: 300 * time.Millisecond})
	require.Len(t, f.found, 1)
	require.Equal(t, "60:5", f.found[0].Seq)
	users := s.Users
	target := f.to
	f.to = &lagging{Store: target.(*pebble.Store), late: func() { appendOne(f, target, "somebody", 5) }}
	s = f.must(move.Options{Online: true, Settle: time.Minute})
	require.Empty(t, f.found)
	require.Equal(t, users, s.Users)
}

// TestServedOrDamagedStoresAreRefused: with what to do.
func TestServedOrDamagedStoresAreRefused(t *testing.T) {
	f := newFixture(t, 300, entrants.Pebble, entrants.Pebble)
	own := func(s mailbox.Store) mailbox.Ownership {
		t.Helper()
		o, err := s.Fence(t.Context(), mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{7}, Owner: "node-7", Lease: time.Minute})
		require.NoError(t, err)
		return o
	}
	for which, s := range map[string]mailbox.Store{"source": f.from, "target": f.to} {
		o := own(s)
		for _, repair := range []bool{false, true} {
			_, err := f.verify(move.Options{Repair: repair})
			require.ErrorIs(t, err, move.ErrServed)
			require.ErrorContains(t, err, which)
			require.ErrorContains(t, err, "node-7 owns shard 1")
		}
		require.NoError(t, s.ReleaseLease(t.Context(), o))
	}
	empty := &fixture{t: t, clock: f.clock, from: f.to, to: f.from}
	_, err := empty.verify(move.Options{Repair: true})
	require.ErrorIs(t, err, move.ErrEmpty, "source and target were mixed up, and what was refused left the target as it was")
	other := entrants.Pebble(t, metamorphic.Config(f.clock)).Store
	d := deployment
	d.OutboxPartitions = 16
	require.NoError(t, other.EnsureDeployment(t.Context(), d))
	_, err = (&fixture{t: t, clock: f.clock, from: f.from, to: other}).verify(move.Options{Repair: true})
	require.ErrorIs(t, err, mailbox.ErrDeploymentMismatch)
	require.ErrorContains(t, err, "16")
}

// restarted is a store whose server came back with another run id.
type restarted struct {
	*naive.Store

	run string
}

func (r *restarted) Incarnation() string { return r.run }

// TestSourceThatMayHaveLostItsTailIsRefused: a copy would hide what is to be made
// good from the logs (design 8.4).
func TestSourceThatMayHaveLostItsTailIsRefused(t *testing.T) {
	f := newFixture(t, 300, newNaive, entrants.Pebble)
	source := &restarted{f.from.(*naive.Store), "run 2"}
	f.from = source
	_, err := f.verify(move.Options{Repair: true})
	require.ErrorIs(t, err, move.ErrTailLost)
	require.ErrorContains(t, err, "start a node on it")
	_, err = f.verify(move.Options{Online: true, Settle: time.Millisecond})
	require.NoError(t, err, "mailboxes can be compared")
}
