package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/metamorphic/naive"
)

const (
	worldShards     = 2
	worldPartitions = 2
	worldLog        = 24 * time.Hour
	anyTime         = 1 << 60
)

var worldSettings = Settings{ReplayWindow: 27 * time.Hour, Versions: 30 * time.Hour, Apply: true}

// entry is a record in a log.
type entry struct {
	value []byte
	at    time.Time
}

// partition is one log: offsets count from 0, what is below start is gone.
type partition struct {
	entries []entry
	start   int
}

func (p *partition) end() int64 { return int64(len(p.entries)) }

// world is a deployment on one clock: groups that change, a coordinator and
// ingesters that lag behind, logs that forget, and the job.
type world struct {
	t     *testing.T
	ctx   context.Context
	rng   *rand.Rand
	now   time.Time
	store *naive.Store
	blobs *blobs.Bucket

	commits *conversation.Service
	outage  bool // the outbox takes nothing
	busy    bool // groups change while the job runs
	count   int

	outbox     [worldPartitions]partition
	dispatched [worldPartitions]int
	dispatch   [worldShards]partition
	admitted   [worldShards]int
	own        [worldShards]mailbox.Ownership
	marks      [worldShards]mailbox.Watermarks

	truth   map[mailbox.GroupVersion][worldShards]map[string]uint64
	digests map[mailbox.GroupVersion]mailbox.Digest
}

var worldGroups = []mailbox.Group{{Tenant: "t", ID: "a"}, {Tenant: "t", ID: "b"}, {Tenant: "u", ID: "a"}}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, ctx: t.Context(), rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		truth: map[mailbox.GroupVersion][worldShards]map[string]uint64{}, digests: map[mailbox.GroupVersion]mailbox.Digest{},
	}
	w.store = naive.New(naive.Options{ShardCount: worldShards, RetentionDays: 14, Clock: w.clock})
	var err error
	w.blobs, err = blobs.Open(t.Context(), "mem://")
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.blobs.Close() })
	for s := range w.own {
		w.own[s], err = w.store.Fence(w.ctx, mailbox.FenceRequest{Shard: mailbox.Shard(s), Token: mailbox.Token{1}, Owner: "node", Lease: 10000 * time.Hour})
		require.NoError(t, err)
	}
	w.restart()
	return w
}

func (w *world) clock() time.Time { return w.now }

// restart forgets what the commit service remembers.
func (w *world) restart() {
	var err error
	w.commits, err = conversation.New(conversation.Config{
		Heads: w.store, Members: w.store, Blobs: w.blobs, Publisher: w, ShardCount: worldShards, OutboxPartitions: worldPartitions, Now: w.clock,
		Limits: conversation.Limits{InlineChangeBytes: 20},
	})
	require.NoError(w.t, err)
}

var errOutage = errors.New("the outbox takes nothing")

// Publish implements conversation.Publisher.
func (w *world) Publish(_ context.Context, p int32, value []byte) error {
	if w.outage {
		return errOutage
	}
	w.outbox[p].entries = append(w.outbox[p].entries, entry{slices.Clone(value), w.now})
	return nil
}

// State implements Log.
func (w *world) State(context.Context) (LogState, error) {
	st := LogState{Retention: LogRetention{Outbox: worldLog, Dispatch: worldLog}}
	for i := range w.outbox {
		st.OutboxStart, st.OutboxEnd = append(st.OutboxStart, int64(w.outbox[i].start)), append(st.OutboxEnd, w.outbox[i].end())
	}
	for i := range w.dispatch {
		st.DispatchStart, st.DispatchEnd = append(st.DispatchStart, int64(w.dispatch[i].start)), append(st.DispatchEnd, w.dispatch[i].end())
	}
	if w.busy { // others do not wait for the job
		for range w.rng.IntN(3) {
			w.message()
			w.change()
		}
	}
	return st, nil
}

func (w *world) group() mailbox.Group { return worldGroups[w.rng.IntN(len(worldGroups))] }

func (w *world) users(n int) []string {
	all := map[string]bool{}
	for range n {
		all[fmt.Sprint("user", w.rng.IntN(12))] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func (w *world) key() string { w.count++; return fmt.Sprint("m", w.count) }

// request commits something; while the outbox is down it stays pending.
func (w *world) request(err error) {
	for _, fine := range []error{nil, conversation.ErrGroupUnknown, conversation.ErrGroupEmpty, conversation.ErrGroupRenumbering} {
		if errors.Is(err, fine) {
			return
		}
	}
	require.ErrorIs(w.t, err, errOutage)
}

func (w *world) change() {
	g := w.group()
	r := conversation.MembershipRequest{Group: g, Users: w.users(1 + w.rng.IntN(4)), Actor: "admin", ClientMessageID: w.key()}
	var err error
	switch w.rng.IntN(5) {
	case 0, 1:
		_, err = w.commits.Leave(w.ctx, r)
	case 2:
		_, err = w.commits.Import(w.ctx, r)
	default:
		_, err = w.commits.Join(w.ctx, r)
	}
	w.request(err)
	w.learn()
}

func (w *world) message() {
	_, err := w.commits.Commit(w.ctx, conversation.CommitRequest{Conversation: mailbox.Conversation(w.group()), Kind: 2, Sender: "s", ClientMessageID: w.key()})
	w.request(err)
}

// renumber makes a new generation of a group; now and then it is taken back.
func (w *world) renumber() {
	g := w.group()
	if cur, ok := w.current(g); !ok || cur.Pending {
		return
	}
	r := conversation.RenumberRequest{Group: g, Token: w.key(), Force: true}
	_, _, err := w.commits.CloseForRenumbering(w.ctx, r)
	if errors.Is(err, errOutage) || errors.Is(err, conversation.ErrGroupRenumbering) {
		return
	}
	require.NoError(w.t, err)
	if w.rng.IntN(3) == 0 {
		return // it crashed: anybody opens the group after the deadline
	}
	_, err = w.commits.RenumberGroup(w.ctx, r)
	w.request(err)
	w.learn()
}

// learn writes down what new versions expand to before anything was removed.
func (w *world) learn() {
	var ids []mailbox.GroupVersion
	require.NoError(w.t, w.store.Versions(w.ctx, func(v mailbox.GroupVersion) bool { ids = append(ids, v); return true }))
	for _, v := range ids {
		manifest, err := w.store.VersionManifest(w.ctx, v)
		require.NoError(w.t, err)
		d := mailbox.Sum(manifest)
		if w.digests[v] == d {
			continue
		}
		w.digests[v] = d // one that was never used may be made anew
		members, err := w.expand(v)
		require.NoError(w.t, err)
		w.truth[v] = members
	}
}

func (w *world) expand(v mailbox.GroupVersion) (out [worldShards]map[string]uint64, err error) {
	cache := membership.NewNodeCache(w.store, w.blobs, worldShards, membership.Bounds{})
	for s := range out {
		a, err := cache.Audience(w.ctx, v, w.digests[v], mailbox.Shard(s))
		if err != nil {
			return out, err
		}
		out[s] = map[string]uint64{}
		for _, lane := range a.Lanes {
			for _, m := range lane {
				out[s][m.User] = m.JoinSeq
			}
		}
	}
	return out, nil
}

// coordinate dispatches some records of a partition, now and then from its start.
func (w *world) coordinate() {
	p := w.rng.IntN(worldPartitions)
	if w.rng.IntN(10) == 0 {
		w.dispatched[p] = w.outbox[p].start // its offset was lost
	}
	for range w.rng.IntN(6) {
		at := w.dispatched[p]
		if at == len(w.outbox[p].entries) {
			return
		}
		rec, err := records.DecodeOutbox(w.outbox[p].entries[at].value, worldShards, anyTime)
		require.NoError(w.t, err)
		all, err := fanout.Plan(rec, fanout.Source{Partition: int32(p), Offset: int64(at)}, worldShards)
		require.NoError(w.t, err)
		for _, d := range all {
			w.frozen(d.GroupVersion(), "the coordinator plans")
			l := &w.dispatch[d.Shard]
			l.entries = append(l.entries, entry{d.Encode(), w.now})
		}
		w.dispatched[p]++
	}
}

// frozen proves that a version expands to exactly the members that it always had.
func (w *world) frozen(v mailbox.GroupVersion, why string) {
	w.t.Helper()
	want, known := w.truth[v]
	require.True(w.t, known, "%s: %+v was never made", why, v)
	got, err := w.expand(v)
	require.NoError(w.t, err, "%s: %+v", why, v)
	require.Equal(w.t, want, got, "%s: %+v", why, v)
}

// admit takes some records of a shard's log; what is begun is mostly completed.
func (w *world) admit() {
	s := w.rng.IntN(worldShards)
	for range w.rng.IntN(8) {
		at := w.admitted[s]
		if at == len(w.dispatch[s].entries) {
			break
		}
		value := w.dispatch[s].entries[at].value
		d, err := records.DecodeDispatch(value, mailbox.Shard(s), anyTime)
		require.NoError(w.t, err)
		seq, err := mailbox.NewSeq(1, int64(at))
		require.NoError(w.t, err)
		known, err := w.store.LookupDispatches(w.ctx, mailbox.Shard(s), []mailbox.DispatchID{d.DispatchID})
		require.NoError(w.t, err)
		b := mailbox.BeginBatch{Frontier: seq}
		if known[0] == nil {
			w.frozen(d.GroupVersion(), "a shard expands")
			b.Progress = []mailbox.DispatchProgress{{
				Dispatch: d.DispatchID, Seq: seq, PayloadDigest: d.PayloadDigest, Record: value, LastOffset: int64(at), LastSeen: w.now.UnixMilli(),
				Manifest: mailbox.Manifest{EntryVersion: 1, ChunkSize: 1, Entries: 1, Lanes: []mailbox.LaneChunks{{Lane: 0, Users: 1, Chunks: 1}}},
			}}
		} else {
			b.Repeats = []mailbox.DispatchRepeat{{Dispatch: d.DispatchID, Seq: known[0].Seq, Offset: int64(at), SeenAt: w.now.UnixMilli()}}
		}
		require.NoError(w.t, w.store.Begin(w.ctx, w.own[s], b))
		w.admitted[s]++
	}
	w.complete(s, 3)
}

// complete marks all but one of so many unfinished dispatches, and moves W.
func (w *world) complete(s, but int) {
	var open []*mailbox.DispatchProgress
	require.NoError(w.t, w.store.ScanProgress(w.ctx, mailbox.Shard(s), 0, func(p *mailbox.DispatchProgress) bool {
		if !p.Complete() {
			open = append(open, p)
		}
		return true
	}))
	var low mailbox.Seq
	for _, p := range open {
		if but > 0 && w.rng.IntN(but) == 0 {
			if low == 0 {
				low = p.Seq
			}
			continue
		}
		w.frozen(decoded(w.t, p, s).GroupVersion(), "a slow retry expands")
		_, err := w.store.MarkChunks(w.ctx, w.own[s], []mailbox.Durable{mailbox.NewDurable(mailbox.ChunkRef{Shard: mailbox.Shard(s), Dispatch: p.Dispatch, Seq: p.Seq})})
		require.NoError(w.t, err)
	}
	to := w.marks[s]
	if w.admitted[s] == 0 {
		return
	}
	to.F, _ = mailbox.NewSeq(1, int64(w.admitted[s]-1))
	for lane := range to.W {
		to.W[lane] = to.F
		if low != 0 {
			to.W[lane] = low.Before()
		}
		to.Floor[lane] = to.W[lane]
	}
	require.NoError(w.t, w.store.CommitWatermarks(w.ctx, w.own[s], &w.marks[s], &to))
	w.marks[s] = to
}

func decoded(t *testing.T, p *mailbox.DispatchProgress, shard int) *records.Dispatch {
	d, err := records.DecodeDispatch(p.Record, mailbox.Shard(shard), anyTime)
	require.NoError(t, err)
	return d
}

// forget lets the logs drop what is older than their retention, some of it later;
// never what is still to be read.
func (w *world) forget(all bool) {
	drop := func(p *partition, read int) {
		for p.start < read && w.now.Sub(p.entries[p.start].at) > worldLog && (all || w.rng.IntN(12) > 0) {
			p.start++
		}
	}
	for i := range w.outbox {
		drop(&w.outbox[i], w.dispatched[i])
	}
	for i := range w.dispatch {
		drop(&w.dispatch[i], min(w.admitted[i], int(w.marks[i].W[0].Offset())+1))
	}
}

// retain runs the job, which may be cut short at any write.
func (w *world) retain(crash bool) {
	st := faulty.New(w.store)
	s := NewSweeper(Config{Store: &dying{Store: st, left: -1}, Blobs: w.blobs, Log: w, Shards: worldShards, Now: w.clock, Margin: time.Hour})
	if crash {
		s.Store.(*dying).left = w.rng.IntN(12)
	}
	err := w.run(s)
	if !crash {
		require.NoError(w.t, err)
	}
}

func (w *world) run(s *Sweeper) error {
	for n := range w.own {
		st, err := w.store.LoadShard(w.ctx, mailbox.Shard(n))
		if err != nil {
			return err
		}
		var all []mailbox.ProgressRemoval
		if err := w.store.ScanProgress(w.ctx, mailbox.Shard(n), 0, func(p *mailbox.DispatchProgress) bool {
			if MayRemoveProgress(p, &st.Watermarks, w.now, worldSettings.ReplayWindow) {
				all = append(all, mailbox.ProgressRemoval{Dispatch: p.Dispatch, Seq: p.Seq, LastOffset: p.LastOffset})
			}
			return true
		}); err != nil {
			return err
		}
		if _, err := s.Store.RemoveProgress(w.ctx, w.own[n], all); err != nil {
			return err
		}
	}
	window, err := s.Observe(w.ctx, worldSettings)
	if err != nil {
		return err
	}
	_, err = s.Groups(w.ctx, worldSettings, window, func(Counts) {})
	return err
}

// dying is the store of a process that ends after so many of the job's writes.
type dying struct {
	mailbox.Store
	left int // negative: it does not
}

func (d *dying) alive() error {
	if d.left == 0 {
		return fmt.Errorf("%w: the process has ended", mailbox.ErrStoreFailed)
	}
	d.left--
	return nil
}

func (d *dying) RemoveVersions(ctx context.Context, vs []mailbox.GroupVersion) error {
	for _, v := range vs { // a batch may be cut short, too
		if err := d.alive(); err != nil {
			return err
		}
		if err := d.Store.RemoveVersions(ctx, []mailbox.GroupVersion{v}); err != nil {
			return err
		}
	}
	return nil
}

func (d *dying) RemoveBitmaps(ctx context.Context, bs []mailbox.BitmapRef) error {
	for _, b := range bs {
		if err := d.alive(); err != nil {
			return err
		}
		if err := d.Store.RemoveBitmaps(ctx, []mailbox.BitmapRef{b}); err != nil {
			return err
		}
	}
	return nil
}

func (d *dying) RemoveDirectory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard) error {
	return errors.Join(d.alive(), d.Store.RemoveDirectory(ctx, g, generation, n))
}

func (d *dying) CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.Store.CompareAndSetRegistry(ctx, name, revision, data)
}

// check proves that whatever can still be dispatched or expanded is whole.
func (w *world) check() {
	w.t.Helper()
	for p := range w.outbox {
		for _, e := range w.outbox[p].entries[w.outbox[p].start:] {
			rec, err := records.DecodeOutbox(e.value, worldShards, anyTime)
			require.NoError(w.t, err)
			g := rec.GetGroup()
			if g == nil {
				continue
			}
			w.frozen(mailbox.GroupVersion{Group: mailbox.Group{Tenant: rec.GetTenantId(), ID: g.GetGroupId()}, Generation: g.GetGeneration(), Version: g.GetMembershipVersion()}, "a record in the outbox")
		}
	}
	for s := range w.dispatch {
		for _, e := range w.dispatch[s].entries[w.dispatch[s].start:] {
			d, err := records.DecodeDispatch(e.value, mailbox.Shard(s), anyTime)
			require.NoError(w.t, err)
			w.frozen(d.GroupVersion(), "a record in the dispatch log")
		}
		require.NoError(w.t, w.store.ScanProgress(w.ctx, mailbox.Shard(s), 0, func(p *mailbox.DispatchProgress) bool {
			w.frozen(decoded(w.t, p, s).GroupVersion(), "progress")
			return true
		}))
	}
	for _, g := range worldGroups {
		if cur, ok := w.current(g); ok && !cur.Pending {
			w.frozen(cur.GroupVersion, "a head")
		}
	}
}

func (w *world) current(g mailbox.Group) (conversation.Current, bool) {
	data, revision, err := w.store.Head(w.ctx, mailbox.Conversation(g))
	require.NoError(w.t, err)
	if revision == 0 {
		return conversation.Current{}, false
	}
	cur, ok, err := conversation.DecodeCurrent(mailbox.Conversation(g), data)
	require.NoError(w.t, err)
	return cur, ok
}
