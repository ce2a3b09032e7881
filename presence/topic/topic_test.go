package topic

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/presence"
	"github.com/laneway/laneway/records"
)

const (
	patience = 90 * time.Second
	ttl      = time.Hour
)

func user(id string) mailbox.User { return mailbox.User{Tenant: "acme", ID: id} }

// fixture is the presence topic on a log.
type fixture struct {
	t     *testing.T
	addrs []string
	cl    *kgo.Client
	pub   *Publisher
	name  string
}

func newFixture(t *testing.T, addrs []string) *fixture {
	t.Helper()
	f := &fixture{t: t, addrs: addrs, name: broker.PresenceTopic("")}
	var err error
	f.cl, err = broker.NewClient(f.config("test"), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(t, err)
	t.Cleanup(f.cl.Close)
	require.NoError(t, broker.EnsurePresenceTopic(f.ctx(), f.cl, broker.TopicsConfig{}, ttl))
	require.NoError(t, broker.EnsurePresenceTopic(f.ctx(), f.cl, broker.TopicsConfig{}, ttl), "it is safe to repeat")
	require.Empty(t, broker.CheckPresenceTopic(f.ctx(), f.cl, broker.TopicsConfig{}, ttl))
	f.pub, err = NewPublisher(f.config("publisher"), f.name)
	require.NoError(t, err)
	t.Cleanup(f.pub.Close)
	return f
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) config(id string) broker.ClientConfig {
	return broker.ClientConfig{Brokers: f.addrs, ClientID: id}
}

func (f *fixture) say(u, device string, online bool, at time.Time) {
	f.t.Helper()
	require.NoError(f.t, f.pub.Publish(f.ctx(), records.Presence{Tenant: "acme", User: u, Device: device, Online: online, At: at.UnixMilli()}))
}

// following is a table that follows the topic.
type following struct {
	*Follower
	table *presence.Table
	mu    sync.Mutex
	came  []string
	count map[string]int
	stop  func()
}

// follow starts a follower and waits until it knows who is online.
func (f *fixture) follow(clock func() time.Time) *following {
	f.t.Helper()
	table := presence.NewTable(presence.Limits{TTL: ttl})
	w := &following{table: table, count: map[string]int{}}
	rebuilt := make(chan struct{})
	w.Follower = NewFollower(FollowConfig{
		Broker: f.config("follower"), Topic: f.name, Table: table, Now: clock, Rebuilt: func() { close(rebuilt) },
		Came:    func(u mailbox.User) { w.mu.Lock(); defer w.mu.Unlock(); w.came = append(w.came, u.ID) },
		Counted: func(outcome string) { w.mu.Lock(); defer w.mu.Unlock(); w.count[outcome]++ },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	w.stop = sync.OnceFunc(func() { cancel(); <-done })
	f.t.Cleanup(w.stop)
	select {
	case <-rebuilt:
	case <-time.After(patience):
		f.t.Fatal("the topic is not read")
	}
	require.True(f.t, w.Complete())
	return w
}

func (w *following) online(u string) (is bool) {
	w.table.View(func(v presence.View) { is = v.Online(v.Hash(user(u))) })
	return is
}

func (w *following) counted(outcome string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[outcome]
}

// records returns how many records the topic holds, by key.
func (f *fixture) records() map[string]int {
	f.t.Helper()
	ends, err := kadm.NewClient(f.cl).ListEndOffsets(f.ctx(), f.name)
	require.NoError(f.t, err)
	end, ok := ends.Lookup(f.name, 0)
	require.True(f.t, ok)
	cl, err := broker.NewClient(f.config("reader"), kgo.ConsumeTopics(f.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	require.NoError(f.t, err)
	defer cl.Close()
	out := map[string]int{}
	for at := int64(-1); at+1 < end.Offset; {
		fetches := cl.PollFetches(f.ctx())
		require.NoError(f.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset
			out[string(r.Key)]++
		})
	}
	return out
}

func (f *fixture) key(u, device string) string {
	return string(records.Presence{Tenant: "acme", User: u, Device: device}.Key())
}

// TestFollowerGoesOnPastJunk: what is no event is counted and skipped, wherever it
// lies; late and repeated events change nothing; a device without news and one
// that was not heard to go are offline after their time.
func TestFollowerGoesOnPastJunk(t *testing.T) {
	log, err := broker.StartEmbedded(t.Context(), broker.EmbeddedOptions{Dir: t.TempDir(), NoSync: true})
	require.NoError(t, err)
	t.Cleanup(log.Close)
	f := newFixture(t, log.Addrs())
	empty := f.follow(time.Now) // an empty topic is read at once
	now := time.Now()
	f.say("ann", "phone", true, now)
	require.NoError(t, f.cl.ProduceSync(f.ctx(), &kgo.Record{Topic: f.name, Value: []byte("junk")}, &kgo.Record{Topic: f.name, Key: []byte("no key"), Value: nil}).FirstErr())
	f.say("ann", "phone", true, now) // again
	f.say("ann", "phone", false, now.Add(-time.Second))
	f.say("bob", "web", true, now.Add(-2*ttl))
	f.say("carl", "web", true, now.Add(48*time.Hour)) // a clock that runs ahead counts as the broker's
	f.say("dora", "web", true, now)
	require.ErrorIs(t, f.pub.Publish(f.ctx(), records.Presence{Tenant: "acme", User: "", Device: "d", At: 1}), records.ErrInvalid)

	check := func(w *following) {
		t.Helper()
		require.Eventually(t, func() bool { return w.online("dora") }, patience, 5*time.Millisecond)
		require.True(t, w.online("ann"))
		require.False(t, w.online("bob"))
		require.True(t, w.online("carl"))
		require.LessOrEqual(t, w.table.Devices(user("carl"), time.Now())[0].At, time.Now().UnixMilli())
		require.Equal(t, 2, w.counted(Junk))
		require.Equal(t, 2, w.counted(string(presence.Stale)))
		require.Equal(t, 1, w.counted(string(presence.Expired)))
		require.Equal(t, 3, w.counted(string(presence.Applied)))
	}
	check(empty)
	empty.stop()
	require.Equal(t, []string{"ann", "carl", "dora"}, empty.came)
	again := f.follow(time.Now)
	check(again)
	again.stop()
	require.Empty(t, again.came, "who is found at the start did not come")

	late := f.follow(func() time.Time { return time.Now().Add(ttl + time.Second) })
	require.False(t, late.online("ann"), "nobody said that she went, and her time is over")
}

// TestRestartOnTheEmbeddedLog: what was acknowledged is there after the log was
// closed and opened again.
func TestRestartOnTheEmbeddedLog(t *testing.T) {
	dir := t.TempDir()
	log, err := broker.StartEmbedded(t.Context(), broker.EmbeddedOptions{Dir: dir})
	require.NoError(t, err)
	f := newFixture(t, log.Addrs())
	now := time.Now()
	f.say("ann", "phone", true, now)
	f.say("bob", "phone", true, now)
	f.say("bob", "phone", false, now.Add(time.Millisecond))
	log.Close()
	log, err = broker.StartEmbedded(t.Context(), broker.EmbeddedOptions{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(log.Close)
	w := newFixture(t, log.Addrs()).follow(time.Now)
	require.True(t, w.online("ann"))
	require.False(t, w.online("bob"))
}

// churn has ten devices come and go many times, each ending as it should be found.
func (f *fixture) churn() {
	f.t.Helper()
	at := time.Now().Add(-time.Minute)
	for round := range 8 {
		for i := range 10 {
			f.say(fmt.Sprint("u", i), "phone", (round+i)%2 == 0, at.Add(time.Duration(round)*time.Second))
		}
	}
	f.say("two", "phone", true, at)
	f.say("two", "web", true, at)
	f.say("two", "web", false, at.Add(time.Second))
}

func (w *following) churned(t *testing.T) {
	t.Helper()
	for i := range 10 {
		require.Equal(t, (7+i)%2 == 0, w.online(fmt.Sprint("u", i)), "u%d", i)
	}
	require.True(t, w.online("two"), "on the device that is left")
	require.Len(t, w.table.Devices(user("two"), time.Now()), 2)
}

// TestRebuildFromACompactedTopic: a start finds in what compaction left what a
// follower knew that heard everything. The log is that of the embedded one, whose
// compaction the product leaves alone.
func TestRebuildFromACompactedTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	f := newFixture(t, cluster.ListenAddrs())
	all := f.follow(time.Now)
	f.churn()
	f.say("last", "phone", true, time.Now()) // the last batch is never compacted
	require.Eventually(t, func() bool { return all.online("last") }, patience, 5*time.Millisecond)
	all.churned(t)
	cluster.Compact()
	require.Equal(t, 1, f.records()[f.key("u3", "phone")], "it is compacted")
	f.follow(time.Now).churned(t)
}

// TestRebuildFromATopicThatKafkaCompacted is the same on a real broker, over its
// restart.
func TestRebuildFromATopicThatKafkaCompacted(t *testing.T) {
	kafka := testservers.StartKafka(t)
	f := newFixture(t, []string{kafka.Addr})
	adm := kadm.NewClient(f.cl)
	set := func(name, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	}
	_, err := adm.AlterBrokerConfigs(f.ctx(), []kadm.AlterConfig{set("log.cleaner.backoff.ms", "100")})
	require.NoError(t, err)
	_, err = adm.AlterTopicConfigs(f.ctx(), []kadm.AlterConfig{set("segment.ms", "100"), set("min.cleanable.dirty.ratio", "0.0001")}, f.name)
	require.NoError(t, err)
	all := f.follow(time.Now)
	f.churn()
	require.Eventually(t, func() bool { return all.online("two") && len(all.table.Devices(user("two"), time.Now())) == 2 }, patience, 5*time.Millisecond)
	all.churned(t)
	require.Eventually(t, func() bool {
		f.say("filler", "phone", true, time.Now()) // a new segment, so that the one before is compacted
		return f.records()[f.key("u3", "phone")] == 1
	}, patience, 300*time.Millisecond, "it is compacted")
	kafka.Restart()
	f.follow(time.Now).churned(t)
	f.say("late", "phone", true, time.Now())
	require.Eventually(t, func() bool { return all.online("late") }, patience, 5*time.Millisecond, "a follower lives through the broker's restart")
}
