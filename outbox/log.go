package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// Log is all topics of an outbox as one log, for the recovery of commits (design
// 8.4): first the partitions of the earlier topics, in order, then those of the
// present one. It is safe for concurrent use.
type Log struct {
	store mailbox.RegistryStore
	logs  []*broker.OutboxLog // by generation; nil for a topic that is deleted
	first []int32             // the first partition of each generation
	total int

	mu     sync.Mutex
	topics []Topic // the earlier ones, as last read
}

// NewLog opens the topics of a Use. Close it.
func NewLog(c broker.ClientConfig, st mailbox.RegistryStore, u Use) (*Log, error) {
	l := &Log{store: st, topics: append([]Topic(nil), u.Earlier...)}
	for g, t := range append(append([]Topic(nil), u.Earlier...), Topic{Name: u.Topic, Partitions: u.Partitions, State: Open}) {
		l.first = append(l.first, int32(l.total))
		l.total += t.Partitions
		if t.State == Deleted {
			l.logs = append(l.logs, nil)
			continue
		}
		one := c
		if g < len(u.Earlier) {
			one.ClientID = fmt.Sprintf("%s-%d", c.ClientID, g+1)
		}
		open, err := broker.NewOutboxLog(one, t.Name, t.Partitions)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.logs = append(l.logs, open)
	}
	return l, nil
}

// Close closes the log.
func (l *Log) Close() {
	for _, log := range l.logs {
		if log != nil {
			log.Close()
		}
	}
}

// at returns the generation of a partition and its number there.
func (l *Log) at(partition int32) (generation int, number int32) {
	for g := len(l.first) - 1; g > 0; g-- {
		if partition >= l.first[g] {
			return g, partition - l.first[g]
		}
	}
	return 0, partition
}

// earlier returns an earlier topic as it is now; false for the present one.
func (l *Log) earlier(ctx context.Context, g int) (Topic, bool, error) {
	if g >= len(l.topics) {
		return Topic{}, false, nil
	}
	l.mu.Lock()
	t := l.topics[g]
	l.mu.Unlock()
	if t.State != Open {
		return t, true, nil
	}
	now, _, err := Load(ctx, l.store)
	if err != nil {
		return t, true, err
	}
	if len(now.Topics) <= g || now.Topics[g].Name != t.Name {
		return t, true, fmt.Errorf("%w: the outbox layout has lost the topic %s", mailbox.ErrCorrupt, t.Name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.topics[g] = now.Topics[g]
	return now.Topics[g], true, nil
}

// Starts returns the first offset that each partition still holds.
func (l *Log) Starts(ctx context.Context) ([]int64, error) {
	return l.offsets(ctx, func(log *broker.OutboxLog) ([]int64, error) { return log.Starts(ctx) }, false)
}

// Ends returns for each partition an offset above every record that was
// acknowledged before the call.
func (l *Log) Ends(ctx context.Context) ([]int64, error) {
	return l.offsets(ctx, func(log *broker.OutboxLog) ([]int64, error) { return log.Ends(ctx) }, true)
}

func (l *Log) offsets(ctx context.Context, ask func(*broker.OutboxLog) ([]int64, error), ends bool) ([]int64, error) {
	out := make([]int64, 0, l.total)
	for g, log := range l.logs {
		t, before, err := l.earlier(ctx, g)
		if err != nil {
			return nil, err
		}
		if before && (t.State == Deleted || ends && t.State != Open) {
			out = append(out, t.Ends...)
			continue
		}
		offsets, err := ask(log)
		if before && errors.Is(err, broker.ErrTopicMissing) && t.State == Drained {
			offsets, err = t.Ends, nil // it is being deleted just now
		}
		if err != nil {
			return nil, err
		}
		out = append(out, offsets...)
	}
	return out, nil
}

// Append appends a record that is no message to a partition. On a sealed topic
// there can be no record behind it, so that nothing is appended, and the last
// offset stands for it.
func (l *Log) Append(ctx context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error) {
	g, number := l.at(partition)
	t, before, err := l.earlier(ctx, g)
	if err != nil {
		return 0, err
	}
	if before && t.State != Open {
		return max(t.Ends[number]-1, 0), nil
	}
	offset, err := l.logs[g].Append(ctx, number, kind, value)
	if before && (errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)) {
		err = fmt.Errorf("%w: the topic %s is being sealed: %w", ErrNotNow, t.Name, err)
	}
	return offset, err
}

// Read calls f with the records of a partition from an offset up to, and not
// including, the one at end, or the end of a sealed topic.
func (l *Log) Read(ctx context.Context, partition int32, from, end int64, f func([]records.Logged) error) error {
	g, number := l.at(partition)
	t, before, err := l.earlier(ctx, g)
	if err != nil {
		return err
	}
	if before && t.State != Open {
		end = min(end, t.Ends[number])
	}
	if from >= end {
		return nil
	}
	if l.logs[g] == nil {
		return fmt.Errorf("%w: the topic %s", broker.ErrTopicMissing, t.Name)
	}
	return l.logs[g].Read(ctx, number, from, end, f)
}
