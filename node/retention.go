package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/retention"
	"github.com/laneway/laneway/workers"
)

// retentionSettings are the settings as package retention has them.
func retentionSettings(c *config.Config) retention.Settings {
	r := c.Retention
	return retention.Settings{Versions: r.Versions, ReplayWindow: r.ReplayWindow, Apply: r.Apply, Every: r.Every}
}

// checkChain refuses retention settings that do not fit each other or the topics.
func (n *Node) checkChain(ctx context.Context) error {
	set := retentionSettings(n.cfg)
	if !set.On() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	logs, err := n.logRetention(ctx)
	if err != nil {
		return err
	}
	return retention.Check(set, logs, retention.Margin)
}

// logRetention is that of the topics that still hold records.
func (n *Node) logRetention(ctx context.Context) (retention.LogRetention, error) {
	l, err := logRetention(ctx, n.dispatches.Client(), n.topics)
	if err != nil {
		return l, err
	}
	for _, t := range n.outbox.Earlier {
		st, err := broker.DescribeTopic(ctx, n.dispatches.Client(), t.Name)
		switch {
		case errors.Is(err, broker.ErrTopicMissing):
			continue // it was deleted
		case err != nil:
			return l, err
		case st.Retention() < 0 || l.Outbox == retention.Forever:
			l.Outbox = retention.Forever
		default:
			l.Outbox = max(l.Outbox, st.Retention())
		}
	}
	return l, nil
}

func logRetention(ctx context.Context, cl *kgo.Client, topics broker.Topics) (l retention.LogRetention, err error) {
	for _, t := range []struct {
		name string
		into *time.Duration
	}{{topics.Outbox, &l.Outbox}, {topics.Dispatch, &l.Dispatch}} {
		st, err := broker.DescribeTopic(ctx, cl, t.name)
		if err != nil {
			return l, err
		}
		if *t.into = st.Retention(); *t.into < 0 {
			*t.into = retention.Forever
		}
	}
	return l, nil
}

// checkRetention is checkChain without a node: topics that are not there yet are made
// with log.retention.
func checkRetention(ctx context.Context, c *config.Config, cl *kgo.Client, outboxTopic string, passed func(string), bad func(fix, format string, args ...any)) {
	set := retentionSettings(c)
	if !set.On() {
		passed("retention is off: versions and dispatch progress are kept for ever")
		return
	}
	logs := retention.LogRetention{Outbox: c.Log.Retention, Dispatch: c.Log.Retention}
	if cl != nil {
		found, err := logRetention(ctx, cl, broker.TopicsConfig{Prefix: c.Log.TopicPrefix, OutboxTopic: outboxTopic}.Topics())
		switch {
		case err == nil:
			logs = found
		case !errors.Is(err, broker.ErrTopicMissing):
			bad("check the broker's log and this user's rights (describe configs)", "the topics' retention: %v", err)
			return
		}
	}
	var chain *retention.ChainError
	if errors.As(retention.Check(set, logs, retention.Margin), &chain) {
		bad(chain.Fix, "%s", chain.What)
		return
	}
	passed(fmt.Sprintf("retention fits together: versions %s, progress %s, the logs %s and %s", kept(set.Versions), kept(set.ReplayWindow), kept(logs.Outbox), kept(logs.Dispatch)))
}

func kept(d time.Duration) string {
	if d <= 0 {
		return "for ever"
	}
	return d.String()
}

// retentionLog is both topics, as the retention job sees them.
type retentionLog struct{ n *Node }

// anyTime is a broker's date that no committed_at is ahead of.
const anyTime = math.MaxInt64 / 2

// State implements retention.Log. The embedded log never gives up a partition's last
// record, so that what its first record freezes is told besides.
func (l retentionLog) State(ctx context.Context) (st retention.LogState, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n, cl := l.n, l.n.dispatches.Client()
	if st.Retention, err = n.logRetention(ctx); err != nil {
		return st, err
	}
	// Of all topics that are or were the outbox (design 5.2).
	if st.OutboxStart, err = n.outboxLog.Starts(ctx); err != nil {
		return st, err
	}
	if st.OutboxEnd, err = n.outboxLog.Ends(ctx); err != nil {
		return st, err
	}
	if st.DispatchStart, st.DispatchEnd, err = broker.Positions(ctx, cl, n.topics.Dispatch, n.cfg.Shards); err != nil {
		return st, err
	}
	if n.embedded == nil {
		return st, nil
	}
	for _, t := range []struct {
		topic        string
		starts, ends []int64
		frozen       func(p int, r *kgo.Record) (mailbox.GroupVersion, bool)
	}{
		{n.topics.Outbox, st.OutboxStart, st.OutboxEnd, l.frozenByOutbox},
		{n.topics.Dispatch, st.DispatchStart, st.DispatchEnd, l.frozenByDispatch},
	} {
		for p := range t.starts {
			if t.starts[p] >= t.ends[p] {
				continue
			}
			first, err := broker.First(ctx, n.clientConfig("retention"), t.topic, int32(p), t.starts[p])
			if err != nil {
				return st, fmt.Errorf("the first record of %s partition %d: %w", t.topic, p, err)
			}
			if v, ok := t.frozen(p, first); ok {
				st.Frozen = append(st.Frozen, v)
			}
			t.starts[p] = first.Offset + 1
		}
	}
	return st, nil
}

func (l retentionLog) frozenByOutbox(_ int, r *kgo.Record) (v mailbox.GroupVersion, ok bool) {
	if broker.OutboxKind(r) != records.OutboxMessage {
		return v, false
	}
	rec, err := records.DecodeOutbox(r.Value, l.n.cfg.Shards, anyTime)
	if err != nil || rec.GetGroup() == nil {
		return v, false // what cannot be read goes to the quarantine
	}
	g := rec.GetGroup()
	return mailbox.GroupVersion{Group: mailbox.Group{Tenant: rec.GetTenantId(), ID: g.GetGroupId()}, Generation: g.GetGeneration(), Version: g.GetMembershipVersion()}, true
}

func (l retentionLog) frozenByDispatch(p int, r *kgo.Record) (v mailbox.GroupVersion, ok bool) {
	if broker.IsEpoch(r) {
		return v, false
	}
	d, err := records.DecodeDispatch(r.Value, mailbox.Shard(p), anyTime)
	if err != nil || d.Group == nil {
		return v, false
	}
	return d.GroupVersion(), true
}

func (n *Node) sweeper() *retention.Sweeper {
	return retention.NewSweeper(retention.Config{
		Store: n.store, Blobs: n.bucket, Log: retentionLog{n}, Shards: n.cfg.Shards, Now: n.opts.RetentionNow, Logger: n.log.With("part", "retention"),
	})
}

func (n *Node) retentionActivities() *activities.Retention {
	return activities.NewRetention(n.sweeper(), func(r retention.Report) {
		n.metrics.RetentionRan(r.Apply, r.Problem == "" && r.Skipped == 0, r.Ended, r.Counts.ByKind())
	})
}

// ensureRetention keeps trying to make the Schedule what the settings say.
func (n *Node) ensureRetention() {
	const key = "retention schedule"
	set, wait := retentionSettings(n.cfg), time.Second
	for {
		c := n.Temporal()
		if c == nil {
			return // the node stops
		}
		err := workers.EnsureRetention(n.run, c, set, n.cfg.Shards)
		if err == nil || n.run.Err() != nil {
			return
		}
		n.log.Warn(key+": trying again", "error", err)
		select {
		case <-n.run.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Minute)
	}
}

// retained is what the API asks of the retention job.
type retained Node

// Show implements api.Retention.
func (n *retained) Show(ctx context.Context) (*lanewayv1.ShowRetentionResponse, error) {
	set := retentionSettings(n.cfg)
	out := &lanewayv1.ShowRetentionResponse{
		VersionsMs: set.Versions.Milliseconds(), ReplayWindowMs: set.ReplayWindow.Milliseconds(), Apply: set.Apply, EveryMs: set.Every.Milliseconds(),
	}
	last, ok, err := (*Node)(n).sweeper().Last(ctx)
	if err != nil {
		return nil, err
	}
	if ok {
		out.Last = reportOf(&last)
	}
	return out, nil
}

// Run implements api.Retention.
func (n *retained) Run(ctx context.Context, dry bool) (*lanewayv1.RetentionReport, error) {
	set := retentionSettings(n.cfg)
	if !set.On() {
		return nil, fmt.Errorf("%w: it is off; set retention.versions or retention.replay_window", retention.ErrRefused)
	}
	c := (*Node)(n).Temporal()
	if c == nil {
		return nil, fmt.Errorf("%w: %w", api.ErrEngineUnavailable, errNoEngine)
	}
	set.Apply = set.Apply && !dry
	report, err := workers.RunRetention(ctx, c, set, n.cfg.Shards)
	if err != nil && !errors.Is(err, retention.ErrRefused) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", api.ErrEngineUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	if report.Ended == 0 { // it is dated when it is kept, after the workflow made it
		report.Ended = time.Now().UnixMilli()
		if last, ok, err := (*Node)(n).sweeper().Last(ctx); err == nil && ok && last.Started == report.Started {
			report.Ended = last.Ended
		}
	}
	return reportOf(&report), nil
}

func reportOf(r *retention.Report) *lanewayv1.RetentionReport {
	c := &r.Counts
	return &lanewayv1.RetentionReport{
		Applied: r.Apply, VersionsMs: r.VersionsMS, ReplayWindowMs: r.ReplayWindowMS, StartedMs: r.Started, EndedMs: r.Ended,
		Counts: &lanewayv1.RetentionCounts{
			Progress: c.Progress, Versions: c.Versions, Bitmaps: c.Bitmaps, Blobs: c.Blobs, BlobBytes: c.BlobBytes, Directories: c.Directories,
		},
		SkippedShards: uint32(r.Skipped), Problem: r.Problem,
	}
}

// RemoveProgress implements activities.ProgressOwner.
func (o owner) RemoveProgress(ctx context.Context, window time.Duration, apply bool, heartbeat func()) (int64, error) {
	now := time.Now
	if o.now != nil {
		now = o.now
	}
	return o.shard.RemoveProgress(ctx, now(), window, apply, heartbeat)
}
