package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

// item is one outbox record of a batch on its way.
type item struct {
	source *kgo.Record
	record *logv1.OutboxRecord // nil once it is in quarantine or dropped
}

func (i *item) conversation() mailbox.Conversation {
	return mailbox.Conversation{Tenant: i.record.GetTenantId(), ID: i.record.GetConversationId()}
}

// process sees a batch through: when it returns true every dispatch of it is
// acknowledged, and every bad record is in quarantine. Whatever fails is tried
// again; false means that ctx ended.
func (p *partition) process(ctx context.Context, batch []*kgo.Record) bool {
	items := make([]item, len(batch))
	for i, r := range batch {
		items[i].source = r
	}
	var out []segment
	ok := p.retry(ctx, "decode and quarantine", func() error { return p.decode(ctx, items) }) &&
		p.retry(ctx, "commit epochs", func() error { return p.keepMarkers(ctx) }) &&
		p.retry(ctx, "fencing", func() error { return p.fence(ctx, items) }) &&
		p.retry(ctx, "membership snapshot", func() error { return p.prove(ctx, items) }) &&
		p.retry(ctx, "plan and quarantine", func() (err error) { out, err = p.plan(ctx, items); return err }) &&
		p.produceAll(ctx, out)
	if ok {
		p.metrics.records.Add(float64(len(batch)))
	}
	return ok
}

// segment is a run of a batch in which no conversation's fencing epoch rises.
type segment []*kgo.Record

// produceAll sees the segments through, one after the other. What fails is
// produced again from the segment's first record on, and what is there twice
// converges. The client keeps the order on each shard's partition: when a record
// fails, so does everything buffered behind it. Only a record that is handed over
// at that very moment could slip past; were its fencing epoch a newer one, ingest
// would drop the older record when it comes again. Hence the segments.
func (p *partition) produceAll(ctx context.Context, out []segment) bool {
	for _, s := range out {
		if !p.retry(ctx, "produce", func() error { return p.produce(ctx, s) }) {
			return false
		}
		p.metrics.dispatches.Add(float64(len(s)))
	}
	return true
}

// retry calls f until it succeeds, and returns false when ctx ended. A store
// whose server is another one is no reason to try again: it ends the coordinator.
func (p *partition) retry(ctx context.Context, what string, f func() error) bool {
	pause := backoff{base: p.c.cfg.RetryBackoff}
	for {
		err := f()
		if err == nil {
			if pause.tries > 0 {
				p.metrics.waiting.Set(0)
				p.waits.Store(nil)
			}
			return true
		}
		if ctx.Err() != nil || p.c.restarted(err) {
			return false
		}
		p.metrics.retries.Inc()
		p.metrics.waiting.Set(1)
		// A short wait is nobody's business; a record that waits for what never
		// comes has to be found.
		if pause.tries >= 3 {
			wait := fmt.Errorf("%s: %w", what, err)
			p.waits.Store(&wait)
		}
		// The first failure and every 16th: a long outage must not fill the log.
		if pause.tries%16 == 0 {
			p.c.cfg.Logger.Warn("outbox partition waits", "partition", p.number, "step", what, "attempt", pause.tries+1, "err", err)
		}
		if !pause.wait(ctx) {
			return false
		}
	}
}

// decode fills in the records that count, in log order; a bad one goes to
// quarantine, whatever its kind.
func (p *partition) decode(ctx context.Context, items []item) error {
	for i := range items {
		it := &items[i]
		if it.record != nil || it.source == nil {
			continue
		}
		if err := p.decodeOne(it); err != nil {
			if err := p.quarantine(ctx, it, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeOne takes an item out of the batch that is no message, or none that
// counts.
func (p *partition) decodeOne(it *item) error {
	offset := it.source.Offset
	switch broker.OutboxKind(it.source) {
	case records.OutboxCommitEpoch:
		e, err := records.DecodeCommitEpoch(it.source.Value)
		if err != nil {
			return err
		}
		p.marker(e, offset)
		it.source = nil
		return nil
	case records.OutboxAnswer: // of use to a recovery only
		if _, err := records.DecodeAnswer(it.source.Value); err != nil {
			return err
		}
		it.source = nil
		return nil
	}
	rec, err := records.DecodeOutbox(it.source.Value, p.c.cfg.Shards, it.source.Timestamp.UnixMilli())
	epoch := rec.GetCommitEpoch()
	if err != nil {
		epoch, _ = records.SplitCommitEpoch(it.source.Value)
	}
	if p.staleCommit(epoch, offset) { // bad or not, it does not count
		p.metrics.staleCommits.Inc()
		it.source = nil
		return nil
	}
	it.record = rec
	return err
}

// quarantine puts the item away and takes it out of the batch.
func (p *partition) quarantine(ctx context.Context, it *item, cause error) error {
	_, value := records.SplitCommitEpoch(it.source.Value)
	bad, condemned := quarantine.From(cause, it.source.Topic, p.number, it.source.Offset, value)
	if !condemned {
		return cause
	}
	if err := p.c.cfg.Quarantine.Put(ctx, bad); err != nil {
		return err
	}
	p.c.cfg.Logger.Warn("ALERT: outbox record put into quarantine", "partition", p.number, "offset", it.source.Offset, "reason", bad.Reason, "detail", bad.Detail)
	p.metrics.quarantined.Inc()
	it.source, it.record = nil, nil
	return nil
}

// fence decides which records are stale and makes the decisions durable. A
// repetition decides the same.
func (p *partition) fence(ctx context.Context, items []item) error {
	asked := make([]mailbox.Conversation, 0, len(items))
	for i := range items {
		if items[i].record != nil {
			asked = append(asked, items[i].conversation())
		}
	}
	if missing := p.fences.Missing(asked); len(missing) > 0 {
		rows, err := p.loadFences(ctx, missing)
		if err != nil {
			return fmt.Errorf("load fences: %w", err)
		}
		p.fences.Loaded(missing, rows)
	}
	for i := range items {
		it := &items[i]
		if it.record == nil {
			continue
		}
		drop, known := p.fences.Decide(it.conversation(), it.record.GetFencingEpoch(), it.source.Offset)
		if !known {
			return errors.New("a fence row left memory within its own batch") // unreachable: rows leave in Clean only
		}
		if drop {
			p.metrics.stale.Inc()
			it.source, it.record = nil, nil
		}
	}
	// The replay horizon: a restart begins at the committed position.
	horizon, known := p.c.commits.committed(p.number)
	if !known {
		horizon = 0
	}
	dirty := p.fences.Dirty(horizon)
	if len(dirty) > 0 {
		if err := p.c.cfg.Fences.PutOutboxFences(ctx, fencePartition(p.c.cfg.Generation, p.number), dirty); err != nil {
			return fmt.Errorf("put fences: %w", err)
		}
	}
	p.fences.Clean(dirty)
	return nil
}

// prove checks that the frozen version of every group record can be had and is
// what the record says.
func (p *partition) prove(ctx context.Context, items []item) error {
	for i := range items {
		g := items[i].record.GetGroup()
		if g.GetMemberCount() == 0 {
			continue // not a group, or nobody to dispatch to
		}
		v := mailbox.GroupVersion{
			Group:      mailbox.Group{Tenant: items[i].record.GetTenantId(), ID: g.GetGroupId()},
			Generation: g.GetGeneration(), Version: g.GetMembershipVersion(),
		}
		proof := membership.Proof{
			MemberCount:    g.GetMemberCount(),
			TargetShards:   g.GetTargetShards(),
			ManifestDigest: mailbox.Digest(g.GetManifestDigest()),
		}
		if items[i].record.GetConversationId() == g.GetGroupId() { // else its seqs are not the group's
			proof.ConversationSeq = items[i].record.GetConversationSeq()
		}
		_, err := p.c.cfg.Snapshots.Get(ctx, v, proof)
		if errors.Is(err, membership.ErrMembershipVersionVoided) {
			// Only a writer of another kind than the commit service gets here.
			if err := p.quarantine(ctx, &items[i], records.NewError(records.VersionVoided, err, "%v", err)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("outbox offset %d: %w", items[i].source.Offset, err)
		}
	}
	return nil
}

// plan returns the records to produce, in order.
func (p *partition) plan(ctx context.Context, items []item) ([]segment, error) {
	var out []segment
	current := make(segment, 0, 2*len(items))
	epochs := make(map[mailbox.Conversation]uint64, len(items))
	for i := range items {
		it := &items[i]
		if it.record == nil {
			continue
		}
		dispatches, err := Plan(it.record, Source{p.number, it.source.Offset}, p.c.cfg.Shards)
		if err != nil {
			if err := p.quarantine(ctx, it, err); err != nil {
				return nil, err
			}
			continue
		}
		c := it.conversation()
		if before, ok := epochs[c]; ok && before < it.record.GetFencingEpoch() {
			out, current = append(out, current), nil
			clear(epochs)
		}
		epochs[c] = it.record.GetFencingEpoch()
		for _, d := range dispatches {
			current = append(current, &kgo.Record{Topic: p.c.cfg.Topics.Dispatch, Partition: int32(d.Shard), Value: d.Encode()})
		}
	}
	return append(out, current), nil
}

// produce appends the records and waits for all of them.
func (p *partition) produce(ctx context.Context, out segment) error {
	if len(out) == 0 {
		return nil
	}
	wait := &acks{left: len(out), done: make(chan struct{})}
	for _, r := range out {
		if err := wait.failed(); err != nil {
			return err
		}
		// A copy: after a failed attempt the record is produced again.
		c := *r
		p.c.log.Produce(ctx, &c, wait.ack)
	}
	select {
	case <-wait.done:
		return wait.failed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acks counts acknowledgements.
type acks struct {
	mu   sync.Mutex
	left int
	err  error
	done chan struct{}
}

func (a *acks) ack(_ *kgo.Record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && a.err == nil {
		a.err = err
	}
	if a.left--; a.left == 0 {
		close(a.done)
	}
}

func (a *acks) failed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
