package conversation

import (
	"context"
	"fmt"
	"sync"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// outbox is the outbox topic: it survives every crash.
type outbox struct {
	mu         sync.Mutex
	partitions [testPartitions][]records.Logged
	start      int64 // of every partition: what is below was deleted
	late       []func()
	delays     chan struct{} // ticks when a record is kept in flight
}

func newOutbox() *outbox { return &outbox{delays: make(chan struct{}, 1)} }

func (o *outbox) Publish(_ context.Context, partition int32, record []byte) error {
	o.put(partition, records.OutboxMessage, record)
	return nil
}

func (o *outbox) put(partition int32, kind records.OutboxKind, value []byte) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := int64(len(o.partitions[partition]))
	o.partitions[partition] = append(o.partitions[partition], records.Logged{Offset: at, Kind: kind, Value: value})
	return at
}

func (o *outbox) Append(_ context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error) {
	return o.put(partition, kind, value), nil
}

func (o *outbox) Starts(context.Context) ([]int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]int64, testPartitions)
	for p := range out {
		out[p] = min(o.start, int64(len(o.partitions[p])))
	}
	return out, nil
}

func (o *outbox) Ends(context.Context) ([]int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]int64, testPartitions)
	for p := range out {
		out[p] = int64(len(o.partitions[p]))
	}
	return out, nil
}

func (o *outbox) Read(_ context.Context, partition int32, from, end int64, f func([]records.Logged) error) error {
	for at := from; at < end; at += 3 {
		o.mu.Lock()
		all := o.partitions[partition]
		if from < o.start || end > int64(len(all)) {
			o.mu.Unlock()
			return fmt.Errorf("offsets %d to %d are not in the log", from, end)
		}
		batch := all[at:min(at+3, end)]
		o.mu.Unlock()
		if err := f(batch); err != nil {
			return err
		}
	}
	return nil
}

// delay keeps a record in flight: it lands when land is called.
func (o *outbox) delay(land func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = append(o.late, land)
	select {
	case o.delays <- struct{}{}:
	default:
	}
}

// delayed ticks when records may be in flight that were not before.
func (o *outbox) delayed() <-chan struct{} { return o.delays }

func (o *outbox) inFlight() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.late)
}

// land lets up to n records in flight arrive.
func (o *outbox) land(n int) {
	for range n {
		o.mu.Lock()
		if len(o.late) == 0 {
			o.mu.Unlock()
			return
		}
		f := o.late[0]
		o.late = o.late[1:]
		o.mu.Unlock()
		f()
	}
}

// records returns what of a conversation counts, in order, and how many of its
// records do not.
func (o *outbox) records(t require.TestingT, c mailbox.Conversation) []*logv1.OutboxRecord {
	out, _ := o.counted(t, c)
	return out
}

func (o *outbox) counted(t require.TestingT, c mailbox.Conversation) (out []*logv1.OutboxRecord, stale int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, list := range o.partitions {
		var epochs records.CommitEpochs
		for _, l := range list {
			switch l.Kind {
			case records.OutboxCommitEpoch:
				n, err := records.DecodeCommitEpoch(l.Value)
				require.NoError(t, err)
				epochs.Mark(n, l.Offset)
				continue
			case records.OutboxAnswer:
				continue
			}
			r := &logv1.OutboxRecord{}
			require.NoError(t, proto.Unmarshal(l.Value, r))
			if r.GetTenantId() != c.Tenant || r.GetConversationId() != c.ID {
				continue
			}
			require.Equal(t, mailbox.CommitBucket(c, testPartitions), int32(p))
			if epochs.Stale(r.GetCommitEpoch(), l.Offset) {
				stale++
				continue
			}
			out = append(out, r)
		}
	}
	return out, stale
}
