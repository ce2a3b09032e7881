package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is a topic of the log: it survives everything.
type topic struct {
	name       string
	partitions [][]*kgo.Record
	committed  map[int32]int64 // positions of the coordinators
	note       func(*kgo.Record)
}

func newTopic(name string, partitions int) *topic {
	return &topic{name: name, partitions: make([][]*kgo.Record, partitions), committed: map[int32]int64{}}
}

func (t *topic) end(partition int32) int64 { return int64(len(t.partitions[partition])) }

func (t *topic) ends() []int64 {
	out := make([]int64, len(t.partitions))
	for p := range out {
		out[p] = t.end(int32(p))
	}
	return out
}

func (t *topic) append(partition int32, r *kgo.Record) int64 {
	c := *r
	c.Topic, c.Partition, c.Offset, c.Timestamp = t.name, partition, t.end(partition), time.Now()
	t.partitions[partition] = append(t.partitions[partition], &c)
	t.note(&c)
	return c.Offset
}
