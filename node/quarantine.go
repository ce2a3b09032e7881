package node

import (
	"context"

	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

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
