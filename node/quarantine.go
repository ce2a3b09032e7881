package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

// quarantineTime bounds a look into the quarantine topic.
const quarantineTime = 10 * time.Second

// quarantined is what the API asks of the quarantine.
type quarantined Node

// List implements api.Quarantine.
func (n *quarantined) List(ctx context.Context, from int64, limit int) (entries []quarantine.Entry, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, quarantineTime)
	defer cancel()
	err = quarantine.Scan(ctx, (*Node)(n).clientConfig("quarantine-list"), n.topics.Quarantine, from, func(e quarantine.Entry) bool {
		if len(entries) == limit {
			next = e.Offset
			return false
		}
		entries = append(entries, e)
		return true
	})
	return entries, next, err
}

// Get implements api.Quarantine.
func (n *quarantined) Get(ctx context.Context, offset int64) (quarantine.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, quarantineTime)
	defer cancel()
	return quarantine.Get(ctx, (*Node)(n).clientConfig("quarantine-list"), n.topics.Quarantine, offset)
}

// Retryable implements api.Quarantine: also what this build and these topics make
// of the record counts.
func (n *quarantined) Retryable(r quarantine.Record) error {
	if err := r.Retryable(); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	var err error
	switch r.Topic {
	case n.topics.Outbox, n.earlierOutbox(r.Topic):
		_, err = records.DecodeOutbox(r.Value, n.cfg.Shards, now)
	case n.topics.Dispatch:
		_, err = records.DecodeDispatch(r.Value, mailbox.Shard(r.Partition), now)
	default:
		return fmt.Errorf("%w: it is of topic %s, which is none of this deployment's", quarantine.ErrNotRetryable, r.Topic)
	}
	if err != nil {
		return fmt.Errorf("%w: it would be put into quarantine again: %w", quarantine.ErrNotRetryable, err)
	}
	return nil
}

// earlierOutbox returns the topic's name if it was the outbox before.
func (n *quarantined) earlierOutbox(topic string) string {
	for _, t := range n.outbox.Earlier {
		if t.Name == topic {
			return topic
		}
	}
	return ""
}

// Retry implements api.Quarantine.
func (n *quarantined) Retry(ctx context.Context, offset int64) (quarantine.Record, int64, error) {
	e, err := n.Get(ctx, offset)
	if err != nil {
		return quarantine.Record{}, 0, err
	}
	if e.Err != nil {
		return quarantine.Record{}, 0, fmt.Errorf("%w: what is at offset %d is no record of the quarantine: %w", quarantine.ErrNotRetryable, offset, e.Err)
	}
	if err := n.Retryable(e.Record); err != nil {
		return quarantine.Record{}, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, quarantineTime)
	defer cancel()
	if err := n.retained(ctx, &e.Record); err != nil {
		return quarantine.Record{}, 0, err
	}
	again := e.Record
	if again.Topic == n.earlierOutbox(again.Topic) { // it takes no records any more
		o, err := records.DecodeOutbox(again.Value, n.cfg.Shards, time.Now().UnixMilli())
		if err != nil {
			return quarantine.Record{}, 0, err
		}
		again.Topic, again.Partition = n.topics.Outbox, mailbox.CommitBucket(mailbox.Conversation{Tenant: o.GetTenantId(), ID: o.GetConversationId()}, n.outbox.Partitions)
	}
	at, err := n.quarantine.Retry(ctx, again)
	if err != nil {
		return quarantine.Record{}, 0, err
	}
	n.log.Info("a quarantined record was published again", "quarantine_offset", offset, "topic", e.Record.Topic, "partition", e.Record.Partition, "offset", at)
	return e.Record, at, nil
}

// retained refuses a record whose membership version retention has removed: nobody
// could expand it any more, and it would hold up what comes behind it.
func (n *quarantined) retained(ctx context.Context, r *quarantine.Record) error {
	k := &kgo.Record{Value: r.Value}
	frozen := retentionLog{(*Node)(n)}.frozenByOutbox
	if r.Topic == n.topics.Dispatch {
		frozen = retentionLog{(*Node)(n)}.frozenByDispatch
	}
	v, ok := frozen(int(r.Partition), k)
	if !ok {
		return nil
	}
	_, err := n.store.VersionManifest(ctx, v)
	if errors.Is(err, mailbox.ErrNotFound) {
		return fmt.Errorf("%w: version %d of group %q, for which it was meant, is not kept any more", quarantine.ErrNotRetryable, v.Version, v.ID)
	}
	return err
}

// shardQuarantine names the source position of what a shard quarantines.
type shardQuarantine struct {
	p         countedQuarantine
	topic     string
	partition int32
}

// countedQuarantine counts what it puts by reason, for both topics.
type countedQuarantine struct {
	p *quarantine.Producer
	m *metrics.Metrics
}

// Put implements fanout.Quarantine.
func (q countedQuarantine) Put(ctx context.Context, r quarantine.Record) error {
	err := q.p.Put(ctx, r)
	if err == nil {
		q.m.Quarantined.Inc(string(r.Reason))
	}
	return err
}

// Put implements ingest.Quarantine.
func (q shardQuarantine) Put(ctx context.Context, reason records.Reason, detail string, offset int64, value []byte) error {
	return q.p.Put(ctx, quarantine.Record{Reason: reason, Detail: detail, Topic: q.topic, Partition: q.partition, Offset: offset, Value: value})
}
