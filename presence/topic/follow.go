package topic

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/internal/sparselog"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/presence"
	"github.com/laneway/laneway/records"
)

// FollowConfig is what a Follower is made of.
type FollowConfig struct {
	Broker broker.ClientConfig
	Topic  string
	Table  *presence.Table
	// Came is called for users who came online, once the table is complete; Rebuilt
	// when it is; Counted for each record, with what it did. They may be nil.
	Came    func(u mailbox.User)
	Rebuilt func()
	Counted func(outcome string)
	Logger  *slog.Logger
	Now     func() time.Time
}

// Junk is the outcome of a record that is no presence event.
const Junk = "junk"

const (
	// clockSlack is how much the broker's clock may differ from this process's for
	// a start to read every event that counts.
	clockSlack = 5 * time.Minute
	// quietFor is after how long without a record the topic counts as read: its
	// last records may have been removed.
	quietFor = 5 * time.Second

	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Follower reads the presence topic into a table: at the start what still counts
// of it, then what comes. The topic is soft state, so it trusts no position: it
// starts where the oldest event that counts may be, and goes on past whatever was
// compacted, removed or is no event.
type Follower struct {
	c        FollowConfig
	log      *sparselog.Log
	complete atomic.Bool
}

// NewFollower returns a follower; Run works it.
func NewFollower(c FollowConfig) *Follower {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Came == nil {
		c.Came = func(mailbox.User) {}
	}
	if c.Rebuilt == nil {
		c.Rebuilt = func() {}
	}
	if c.Counted == nil {
		c.Counted = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Follower{c: c, log: &sparselog.Log{Logger: c.Logger}}
}

// Complete reports whether the table holds what the topic held at the start.
func (f *Follower) Complete() bool { return f.complete.Load() }

// Run reads until ctx ends. A broker or a topic that is away is waited for.
func (f *Follower) Run(ctx context.Context) error {
	from := kgo.NewOffset().AfterMilli(f.c.Now().Add(-f.c.Table.TTL() - clockSlack).UnixMilli())
	cl, err := broker.NewClient(f.c.Broker, kgo.ConsumeTopics(f.c.Topic), kgo.ConsumeStartOffset(from), kgo.ConsumeResetOffset(from), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	var expiring sync.WaitGroup
	defer expiring.Wait()
	expiring.Go(func() { f.expire(ctx) })
	missing := f.toRead(ctx, cl)
	quiet := f.c.Now()
	for ctx.Err() == nil {
		if !f.Complete() && (len(missing) == 0 || f.c.Now().Sub(quiet) > quietFor) {
			f.complete.Store(true)
			f.c.Logger.Info("who is online is known", "users", f.users())
			f.c.Rebuilt()
		}
		poll, cancel := ctx, context.CancelFunc(func() {})
		if !f.Complete() {
			poll, cancel = context.WithTimeout(ctx, time.Second)
		}
		fetches := cl.PollFetches(poll)
		over := poll.Err() != nil
		cancel()
		if fetches.NumRecords() > 0 {
			quiet = f.c.Now()
		}
		fetches.EachRecord(func(r *kgo.Record) {
			f.take(r)
			if r.Offset+1 >= missing[r.Partition] {
				delete(missing, r.Partition)
			}
		})
		fetches.EachError(func(topic string, partition int32, err error) {
			if !over {
				f.log.Write(slog.LevelWarn, "fetch", "the presence topic cannot be read; notifications of some users come late", "topic", topic, "partition", partition, "error", err)
				pause(ctx, firstRetry)
			}
		})
	}
	return ctx.Err()
}

func (f *Follower) users() int {
	online, _ := f.c.Table.Stats()
	return online
}

// take applies one record.
func (f *Follower) take(r *kgo.Record) {
	p, err := records.DecodePresence(r.Key, r.Value, r.Timestamp.UnixMilli())
	if err != nil {
		f.c.Counted(Junk)
		f.log.Write(slog.LevelWarn, Junk, "a record of the presence topic is no event and is skipped", "partition", r.Partition, "offset", r.Offset, "error", err)
		return
	}
	u := mailbox.User{Tenant: p.Tenant, ID: p.User}
	outcome, came := f.c.Table.Apply(presence.Event{User: u, Device: p.Device, Online: p.Online, At: p.At}, f.c.Now())
	f.c.Counted(string(outcome))
	if outcome == presence.Full {
		f.log.Write(slog.LevelWarn, string(presence.Full), "more devices are online than presence.max_devices, or than one user may have; their users' notifications come late")
	}
	if came && f.Complete() {
		f.c.Came(u)
	}
}

// toRead returns the end of each partition that has something to read. It waits
// for the topic.
func (f *Follower) toRead(ctx context.Context, cl *kgo.Client) map[int32]int64 {
	adm := kadm.NewClient(cl)
	wait := firstRetry
	for ctx.Err() == nil {
		missing, err := f.bounds(ctx, adm)
		if err == nil {
			return missing
		}
		f.log.Write(slog.LevelWarn, "bounds", "the presence topic does not answer; notifications of users without an open Watch wait for it", "error", err)
		pause(ctx, wait)
		wait = min(2*wait, lastRetry)
	}
	return nil
}

func (f *Follower) bounds(ctx context.Context, adm *kadm.Client) (map[int32]int64, error) {
	starts, err := adm.ListOffsetsAfterMilli(ctx, f.c.Now().Add(-f.c.Table.TTL()-clockSlack).UnixMilli(), f.c.Topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, broker.Classify(err)
	}
	ends, err := adm.ListEndOffsets(ctx, f.c.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, broker.Classify(err)
	}
	missing := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if from, ok := starts.Lookup(o.Topic, o.Partition); ok && from.Offset < o.Offset {
			missing[o.Partition] = o.Offset
		}
	})
	return missing, nil
}

// expire lets time pass in the table.
func (f *Follower) expire(ctx context.Context) {
	tick := time.NewTicker(min(max(f.c.Table.TTL()/8, 100*time.Millisecond), time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.c.Table.Expire(f.c.Now())
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
