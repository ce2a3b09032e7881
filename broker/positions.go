package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Positions returns for each partition of a topic the first offset that it holds and
// an offset above every record that was acknowledged before the call.
func Positions(ctx context.Context, cl *kgo.Client, topic string, partitions int) (starts, ends []int64, err error) {
	adm := kadm.NewClient(cl)
	for _, ask := range []struct {
		dst  *[]int64
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
	}{{&starts, adm.ListStartOffsets}, {&ends, adm.ListEndOffsets}} {
		listed, err := ask.list(ctx, topic)
		if err != nil {
			return nil, nil, fmt.Errorf("offsets of %s: %w", topic, Classify(err))
		}
		*ask.dst = make([]int64, partitions)
		for p := range *ask.dst {
			o, ok := listed.Lookup(topic, int32(p))
			if !ok {
				o.Err = kerr.UnknownTopicOrPartition
			}
			if o.Err != nil {
				return nil, nil, fmt.Errorf("offsets of %s partition %d: %w", topic, p, Classify(o.Err))
			}
			(*ask.dst)[p] = o.Offset
		}
	}
	return starts, ends, nil
}

// First returns the record at an offset of a partition.
func First(ctx context.Context, c ClientConfig, topic string, partition int32, at int64) (*kgo.Record, error) {
	c.Registerer = nil
	r, err := NewReader(ctx, c, topic, partition, at)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		rs, err := r.Poll(ctx)
		if err != nil {
			return nil, err
		}
		if len(rs) > 0 {
			return rs[0], nil
		}
	}
}
