package broker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
)

func (e *Embedded) keepRetention(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := e.enforceRetention(ctx, time.Now()); err != nil && ctx.Err() == nil {
			e.log.Warn("embedded log: retention", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// enforceRetention deletes what is older than its topic's retention.ms or above
// its retention.bytes, but never the last record of a partition (see
// StartEmbedded).
func (e *Embedded) enforceRetention(ctx context.Context, now time.Time) error {
	adm := kadm.NewClient(e.cl)
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	for _, name := range topics.Names() {
		t, err := describe(ctx, adm, name)
		if err != nil {
			return err
		}
		// A compacted topic that is trimmed too is trimmed only: kfake compacts all
		// topics or none, and enforces its own retention with it (see StartEmbedded).
		if !strings.Contains(t.Configs["cleanup.policy"], "delete") {
			continue
		}
		before := make(map[int32]int64)
		if age := t.Retention(); age >= 0 {
			young, err := adm.ListOffsetsAfterMilli(ctx, now.Add(-age).UnixMilli(), name)
			if err != nil {
				return fmt.Errorf("topic %s: %w", name, err)
			}
			young.Each(func(o kadm.ListedOffset) {
				if o.Err == nil {
					before[o.Partition] = o.Offset
				}
			})
		}
		limit := t.retentionBytes()
		for _, p := range e.cluster.PartitionInfos(name) {
			start := trimTo(p, before[p.Partition], limit)
			if start <= p.LogStartOffset {
				continue
			}
			if err := e.cluster.DeleteRecords(name, p.Partition, start); err != nil {
				return fmt.Errorf("topic %s partition %d: delete records below %d: %w", name, p.Partition, start, err)
			}
		}
	}
	return nil
}

// trimTo returns the offset below which a partition's records go. young is the
// first offset within the age limit. The size limit is met approximately, as if
// all records had the same size.
func trimTo(p *kfake.PartitionInfo, young, limit int64) int64 {
	start := young
	if records := p.HighWatermark - p.LogStartOffset; limit >= 0 && p.NumBytes > limit && records > 0 {
		excess := float64(p.NumBytes-limit) / float64(p.NumBytes)
		start = max(start, p.LogStartOffset+int64(excess*float64(records)))
	}
	return min(start, p.HighWatermark-1)
}
