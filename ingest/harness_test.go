package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/pebble"
)

// The shard under test is one of two, so that there are users who are not its
// business.
const (
	tenant    = "acme"
	shards    = 2
	testShard = mailbox.Shard(1)
	patience  = 90 * time.Second
)

// world is a shard's surroundings: a Pebble store on a file system that can
// crash, a log in memory, audiences, and what is expected of all that.
type world struct {
	t          *testing.T
	rng        *rand.Rand
	fs         *vfs.MemFS
	pebble     *pebble.Store
	store      *faulty.Store
	log        *memLog
	audiences  *audiences
	quarantine *quarantined
	engine     ingest.Engine // an autoEngine unless a test says otherwise
	metrics    *metrics.Metrics
	options    ingest.Options
	logger     *slog.Logger

	users map[string]bool // everybody who was ever named
	floor [mailbox.LaneCount]mailbox.Seq
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	t.Logf("seed %d", seed)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewCrashableMem(), log: newMemLog(), quarantine: &quarantined{},
		audiences: &audiences{versions: map[mailbox.GroupVersion][]membership.Member{}}, users: map[string]bool{},
		options: ingest.Options{
			ClaimTimeout: 100 * time.Millisecond, Turn: time.Second, BatchTimeout: 200 * time.Millisecond, SlowAttach: 300 * time.Millisecond,
		},
		logger: slog.New(slog.DiscardHandler), engine: &autoEngine{},
	}
	if os.Getenv("LANEWAY_TEST_LOG") != "" {
		w.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w.openStore()
	t.Cleanup(func() { require.NoError(t, w.pebble.Close()) })
	return w
}

func (w *world) openStore() {
	w.t.Helper()
	var err error
	w.pebble, err = pebble.Open(pebble.Options{Dir: "data", FS: w.fs, ShardCount: shards, ExpireEvery: -1, MemTableSize: 4 << 20, CacheSize: 4 << 20})
	require.NoError(w.t, err)
	w.store = faulty.New(w.pebble)
}

// running is a shard at work.
type running struct {
	*ingest.Shard
	w      *world
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (w *world) config() ingest.Config {
	w.metrics = metrics.New(metrics.Options{Shards: shards})
	return ingest.Config{
		Shard: testShard, Shards: shards, Store: w.store, Log: w.log, Audiences: w.audiences, Quarantine: w.quarantine, Engine: w.engine,
		Node: "test", Address: "http://127.0.0.1:1", Options: w.options, Metrics: w.metrics, Logger: w.logger,
	}
}

// run opens the shard and works it.
func (w *world) run() *running {
	w.t.Helper()
	s, err := ingest.Open(w.t.Context(), w.config())
	require.NoError(w.t, err)
	return w.runShard(s)
}

func (w *world) runShard(s *ingest.Shard) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Shard: s, w: w, cancel: cancel, done: make(chan struct{})}
	if e, ok := w.engine.(*autoEngine); ok {
		e.serve(s)
	}
	go func() {
		defer close(r.done)
		r.err = s.Run(ctx)
	}()
	w.t.Cleanup(r.stop)
	return r
}

// stop ends the shard and waits for it.
func (r *running) stop() {
	r.cancel()
	r.w.store.HealAll() // what hangs must go on, to end
	if e, ok := r.w.engine.(*autoEngine); ok {
		e.stop()
	}
	<-r.done
}

// ended waits for the shard to end by itself.
func (r *running) ended() error {
	r.w.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.w.t.Fatal("the shard goes on")
	}
	return r.err
}

// crash ends the process as a power cut does: the store loses a random part of
// what was not synced.
func (r *running) crash() {
	w := r.w
	w.t.Helper()
	w.store.Kill()
	crashed := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: w.rng})
	r.stop()
	require.NoError(w.t, w.pebble.Close())
	w.fs = crashed
	w.openStore()
}

// drained waits until W of every lane has passed everything that is in the log.
func (r *running) drained() {
	r.w.t.Helper()
	target := r.w.oracle().end
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		r.passed(lane, target)
	}
}

// passed waits until W of a lane has passed a seq.
func (r *running) passed(lane mailbox.Lane, seq mailbox.Seq) {
	r.w.t.Helper()
	require.NoError(r.w.t, r.waitW(lane, seq), "%s", r.describe(lane))
}

func (r *running) waitW(lane mailbox.Lane, seq mailbox.Seq) error {
	changed, stop := r.Watch(lane)
	defer stop()
	timeout := time.After(patience)
	for r.W(lane) < seq {
		select {
		case <-changed:
		case <-r.done:
			return fmt.Errorf("the shard ended: %w", r.err)
		case <-timeout:
			return fmt.Errorf("W of lane %d stays at %s, want %s", lane, r.W(lane), seq)
		}
	}
	return nil
}

func (r *running) describe(lane mailbox.Lane) string {
	return fmt.Sprintf("%+v refused %q", r.Status(true).Lanes[lane], r.Refused(lane))
}

// until waits for a state that has no event: it asks again and again.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 5*time.Millisecond, what)
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: nothing happened", what)
	}
}

// --- expectations

// oracle is what a naive reader of the log comes to.
type oracle struct {
	end        mailbox.Seq
	boxes      map[string][]mailbox.Entry // by user of the shard, in order
	quarantine int
	duplicates int
	stale      int
}

// oracle reads the whole log, also what was truncated since, record by record.
func (w *world) oracle() oracle {
	o := oracle{boxes: map[string][]mailbox.Entry{}}
	epoch := mailbox.Epoch(1)
	seen := map[mailbox.DispatchID]mailbox.Digest{}
	fence := map[string]uint64{}
	for _, r := range w.log.all() {
		if r.IsEpoch {
			if e, err := records.DecodeEpoch(r.Value); err == nil {
				epoch = max(epoch, e.Epoch)
			}
		}
		seq, err := mailbox.NewSeq(epoch, r.Offset)
		require.NoError(w.t, err)
		o.end = seq
		if r.IsEpoch {
			continue
		}
		d, err := records.DecodeDispatch(r.Value, testShard, r.Timestamp)
		if err != nil {
			o.quarantine++
			continue
		}
		stale := d.FencingEpoch < fence[d.Conversation]
		fence[d.Conversation] = max(fence[d.Conversation], d.FencingEpoch)
		if digest, ok := seen[d.DispatchID]; ok {
			if digest != d.PayloadDigest {
				o.quarantine++
			} else {
				o.duplicates++
			}
			continue
		}
		if stale {
			o.stale++
			continue
		}
		seen[d.DispatchID] = d.PayloadDigest
		for _, u := range w.recipients(d) {
			for _, e := range d.Events {
				if len(e.Users) > 0 && !contains(e.Users, u) {
					continue
				}
				o.boxes[u] = append(o.boxes[u], mailbox.Entry{
					TenantID: d.Tenant, UserID: u, Seq: seq, EventType: e.Type, EventID: mailbox.NewEventID(d.Tenant, d.DispatchID, u, e.Type),
					DispatchID: d.DispatchID, ConversationID: d.Conversation, ConversationSeq: d.ConversationSeq, MessageID: d.MessageID,
					SenderID: d.SenderID, CreatedAt: d.CommittedAt, Payload: e.Payload,
				})
			}
		}
	}
	return o
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// recipients are the users of the shard that a dispatch is for.
func (w *world) recipients(d *records.Dispatch) []string {
	var out []string
	add := func(u string) {
		if mailbox.Place(mailbox.User{Tenant: d.Tenant, ID: u}, shards).Shard == testShard {
			out = append(out, u)
		}
	}
	for _, u := range d.Users {
		add(u)
	}
	if d.Group != nil {
		for _, m := range w.audiences.members(d.GroupVersion()) {
			if m.JoinSeq <= d.ConversationSeq {
				add(m.User)
			}
		}
	}
	return out
}

// check holds the store's mailboxes against the oracle, up to the durable W of
// each lane: invariants I1, I2 and I3, and that W never goes back. It returns
// every mailbox's bytes up to W.
func (w *world) check() map[string][]byte {
	w.t.Helper()
	ctx := w.t.Context()
	st, err := w.pebble.LoadShard(ctx, testShard)
	require.NoError(w.t, err)
	for lane := range st.W {
		require.GreaterOrEqual(w.t, st.W[lane], w.floor[lane], "W of lane %d went back", lane)
		require.Equal(w.t, st.W[lane], st.Floor[lane], "W_floor of lane %d", lane)
		require.LessOrEqual(w.t, st.W[lane], st.F, "W of lane %d is above F", lane)
		w.floor[lane] = st.W[lane]
	}
	o := w.oracle()
	all := map[string][]byte{}
	for u := range w.users {
		user := mailbox.User{Tenant: tenant, ID: u}
		at := mailbox.Place(user, shards)
		upTo := st.W[at.Lane]
		if at.Shard != testShard {
			upTo = mailbox.Seq(1<<63 - 1)
		}
		page, err := w.pebble.RangeScan(ctx, mailbox.Scan{User: user, UpTo: upTo, Limits: mailbox.PageLimits{MaxItems: 1 << 20, MaxBytes: 1 << 30}})
		require.NoError(w.t, err)
		require.True(w.t, page.Complete)
		got, want := []byte{}, []byte{}
		for _, e := range page.Entries {
			got = append(got, w.encode(e)...)
		}
		n := 0
		for _, e := range o.boxes[u] {
			if e.Seq <= upTo {
				want = append(want, w.encode(e)...)
				n++
			}
		}
		if !bytes.Equal(got, want) {
			w.t.Fatalf("mailbox of %s (shard %d lane %d) up to %s has %d entries, want %d:\n got %s\nwant %s", u, at.Shard, at.Lane, upTo, len(page.Entries), n,
				briefly(page.Entries), briefly(o.boxes[u]))
		}
		all[u] = got
	}
	return all
}

func (w *world) encode(e mailbox.Entry) []byte {
	b, err := mailbox.EncodeEntry(e)
	require.NoError(w.t, err)
	return b
}

func briefly(es []mailbox.Entry) string {
	var b bytes.Buffer
	for _, e := range es {
		fmt.Fprintf(&b, " %s/%s/%s", e.Seq, e.EventType, e.MessageID)
	}
	return b.String()
}

// --- messages

// userIn makes up a user of the shard in a lane.
func (w *world) userIn(lane mailbox.Lane) string { return w.usersIn(1, lane)[0] }

var madeUp sync.Map // of lane: []string; users by lane are searched for once

// usersIn makes up n users of the shard in a lane, always the same.
func (w *world) usersIn(n int, lane mailbox.Lane) []string {
	list, _ := madeUp.Load(lane)
	have, _ := list.([]string)
	next := 0
	if len(have) > 0 {
		_, err := fmt.Sscanf(have[len(have)-1], "u%d", &next)
		require.NoError(w.t, err)
		next++
	}
	for ; len(have) < n; next++ {
		u := fmt.Sprintf("u%d", next)
		if at := mailbox.Place(mailbox.User{Tenant: tenant, ID: u}, shards); at.Shard == testShard && at.Lane == lane {
			have = append(have[:len(have):len(have)], u)
		}
	}
	madeUp.Store(lane, have)
	return have[:n:n] // to append to it must not write into the list
}

// committedAt is a time of day that no test outlives.
var committedAt = time.Now().Add(-time.Minute).UnixMilli()

// message is the common part of a dispatch.
func message(conv string, seq uint64) *records.Dispatch {
	c := mailbox.Conversation{Tenant: tenant, ID: conv}
	id := fmt.Sprintf("%s-m%d", conv, seq)
	return &records.Dispatch{
		DispatchID: mailbox.NewDispatchID(c, seq, id, 0), Shard: testShard, Tenant: tenant, Conversation: conv, MessageID: id,
		ConversationSeq: seq, SenderID: "sender", CommittedAt: committedAt, FencingEpoch: 1,
		Events: []records.Event{{Type: mailbox.EventMessage}},
	}
}

// single is a message of a single chat.
func single(conv string, seq uint64, users ...string) *records.Dispatch {
	d := message(conv, seq)
	d.Kind, d.Users = logv1.ConversationKind_CONVERSATION_KIND_SINGLE, users
	return d
}

// group is a message to a frozen version of a group.
func (w *world) group(conv string, seq uint64, v mailbox.GroupVersion) *records.Dispatch {
	d := message(conv, seq)
	d.Kind = logv1.ConversationKind_CONVERSATION_KIND_GROUP
	d.Group = &records.GroupAudience{
		GroupID: v.ID, Generation: v.Generation, Version: v.Version, ManifestDigest: digestOf(v),
		SlotHighWater: 1 << 20, MemberCount: uint32(len(w.audiences.members(v))),
	}
	return d
}

// send appends a dispatch to the log and returns its offset.
func (w *world) send(d *records.Dispatch) int64 {
	d.PayloadDigest = d.ContentDigest()
	for _, u := range d.Users {
		w.users[u] = true
	}
	if d.Group != nil {
		for _, m := range w.audiences.members(d.GroupVersion()) {
			w.users[m.User] = true
		}
	}
	return w.log.append(d.CommittedAt, false, d.Encode())
}

// version makes a version of a group out of users who joined at conversation_seq
// 1, in slot order.
func (w *world) version(id string, n uint64, users ...string) mailbox.GroupVersion {
	var ms []membership.Member
	for i, u := range users {
		ms = append(ms, membership.Member{Slot: uint32(i + 1), User: u, JoinSeq: 1})
	}
	return w.versionOf(id, n, ms)
}

func (w *world) versionOf(id string, n uint64, ms []membership.Member) mailbox.GroupVersion {
	v := mailbox.GroupVersion{Group: mailbox.Group{Tenant: tenant, ID: id}, Generation: 1, Version: n}
	w.audiences.mu.Lock()
	defer w.audiences.mu.Unlock()
	w.audiences.versions[v] = ms
	return v
}

func digestOf(v mailbox.GroupVersion) mailbox.Digest {
	return mailbox.Sum(fmt.Appendf(nil, "%v", v))
}

// --- doubles

var errUnreadable = errors.New("the bitmap cannot be read")

type audiences struct {
	mu         sync.Mutex
	versions   map[mailbox.GroupVersion][]membership.Member
	unreadable bool
	asked      int
}

func (a *audiences) members(v mailbox.GroupVersion) []membership.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.versions[v]
}

func (a *audiences) readable(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unreadable = !yes
}

// Audience implements ingest.Audiences.
func (a *audiences) Audience(_ context.Context, v mailbox.GroupVersion, manifest mailbox.Digest, shard mailbox.Shard) (*membership.Audience, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.unreadable {
		return nil, errUnreadable
	}
	if manifest != digestOf(v) {
		return nil, mailbox.ErrCorrupt
	}
	out := &membership.Audience{}
	for _, m := range a.versions[v] {
		if at := mailbox.Place(mailbox.User{Tenant: v.Tenant, ID: m.User}, shards); at.Shard == shard {
			out.Members++
			out.Lanes[at.Lane] = append(out.Lanes[at.Lane], m)
		}
	}
	return out, nil
}

type quarantined struct {
	mu  sync.Mutex
	all []records.Reason
}

// Put implements ingest.Quarantine.
func (q *quarantined) Put(_ context.Context, reason records.Reason, _ string, _ int64, _ []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, reason)
	return nil
}

func (q *quarantined) reasons() []records.Reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]records.Reason(nil), q.all...)
}

var errOutOfRange = errors.New("offset out of range")

// memLog is one partition in memory.
type memLog struct {
	mu      sync.Mutex
	start   int64 // records below are gone, but for the oracle
	recs    []admission.Record
	changed chan struct{}
}

func newMemLog() *memLog { return &memLog{changed: make(chan struct{})} }

func (l *memLog) append(at int64, epoch bool, value []byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := int64(len(l.recs))
	l.recs = append(l.recs, admission.Record{Offset: o, Timestamp: at, IsEpoch: epoch, Value: value})
	close(l.changed)
	l.changed = make(chan struct{})
	return o
}

func (l *memLog) all() []admission.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]admission.Record(nil), l.recs...)
}

// truncate drops what is below an offset.
func (l *memLog) truncate(start int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = start
}

// cut drops the log's tail from an offset on.
func (l *memLog) cut(end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recs = l.recs[:end:end]
}

// Bounds implements ingest.Log.
func (l *memLog) Bounds(context.Context) (start, end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, int64(len(l.recs)), nil
}

// Epochs implements ingest.Log.
func (l *memLog) Epochs(_ context.Context, from int64) ([]ingest.EpochMark, error) {
	var out []ingest.EpochMark
	for _, r := range l.all() {
		if r.Offset < max(from, l.start) || !r.IsEpoch {
			continue
		}
		if e, err := records.DecodeEpoch(r.Value); err == nil {
			out = append(out, ingest.EpochMark{Epoch: e, Offset: r.Offset})
		}
	}
	return out, nil
}

// AppendEpoch implements ingest.Log.
func (l *memLog) AppendEpoch(_ context.Context, e records.Epoch) (int64, error) {
	return l.append(committedAt, true, e.Encode()), nil
}

// Open implements ingest.Log.
func (l *memLog) Open(_ context.Context, from int64) (ingest.Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.start || from > int64(len(l.recs)) {
		return nil, errOutOfRange
	}
	return &memReader{l: l, at: from}, nil
}

// CommitLag implements ingest.Log.
func (*memLog) CommitLag(context.Context, int64) error { return nil }

type memReader struct {
	l  *memLog
	at int64
}

// Poll implements ingest.Reader: batches of up to 50 records.
func (r *memReader) Poll(ctx context.Context) ([]admission.Record, error) {
	for {
		r.l.mu.Lock()
		changed, start := r.l.changed, r.l.start
		var batch []admission.Record
		if r.at >= start && r.at < int64(len(r.l.recs)) {
			batch = append(batch, r.l.recs[r.at:min(r.at+50, int64(len(r.l.recs)))]...)
		}
		r.l.mu.Unlock()
		if r.at < start {
			return nil, errOutOfRange
		}
		if len(batch) > 0 {
			r.at += int64(len(batch))
			return batch, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// Close implements ingest.Reader.
func (*memReader) Close() {}
