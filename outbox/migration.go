package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

var (
	// ErrNotNow: the migration is not where this step can be made; the message says
	// what has to come first.
	ErrNotNow = errors.New("not yet")
	// ErrNone: there is no migration.
	ErrNone = errors.New("no migration of the outbox was begun")
)

// Store is what a migration needs of the store. Every mailbox.Store is one.
type Store interface {
	mailbox.RegistryStore
	mailbox.OutboxFenceStore
	Deployment(ctx context.Context) (mailbox.Deployment, error)
	Incarnation() string
}

// Migration makes the steps of a migration. Its methods may be repeated, and made
// by several processes at once.
type Migration struct {
	Store  Store
	Client *kgo.Client
	// Topics are the deployment's settings; OutboxPartitions is not looked at.
	Topics broker.TopicsConfig
	Now    func() time.Time // nil: time.Now
}

func (m *Migration) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

func (m *Migration) prefix() string {
	if m.Topics.Prefix == "" {
		return broker.DefaultPrefix
	}
	return m.Topics.Prefix
}

// change makes one change of the layout by compare-and-set; f may be called more
// than once, and says false when there is nothing to change.
func change(ctx context.Context, st mailbox.RegistryStore, f func(*Layout) (bool, error)) (Layout, error) {
	for try := range 32 {
		if try > 0 {
			select {
			case <-ctx.Done():
				return Layout{}, ctx.Err()
			case <-time.After(time.Duration(try) * 5 * time.Millisecond):
			}
		}
		l, revision, err := Load(ctx, st)
		if err != nil {
			return Layout{}, err
		}
		changed, err := f(&l)
		if err != nil || !changed {
			return l, err
		}
		data, err := l.Encode()
		if err != nil {
			return Layout{}, err
		}
		if _, err := Decode(data); err != nil {
			return Layout{}, err // what nobody could read is not written
		}
		err = st.CompareAndSetRegistry(ctx, RowName, revision, data)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, mailbox.ErrStoreRestarted), !errors.Is(err, mailbox.ErrHeadMoved) && !errors.Is(err, mailbox.ErrOutcomeUnknown):
			return Layout{}, fmt.Errorf("write the outbox layout: %w", err)
		}
	}
	return Layout{}, fmt.Errorf("write the outbox layout: %w again and again", mailbox.ErrHeadMoved)
}

// Switch notes that writers use the last topic, before any does.
func Switch(ctx context.Context, st mailbox.RegistryStore) error {
	_, err := change(ctx, st, func(l *Layout) (bool, error) {
		if len(l.Topics) == 0 || l.Switched {
			return false, nil
		}
		l.Switched = true
		return true, nil
	})
	return err
}

// Begin makes the new topic and names it in the layout.
func (m *Migration) Begin(ctx context.Context, partitions int) (Layout, error) {
	if partitions < 1 || partitions > MaxPartitions {
		return Layout{}, fmt.Errorf("%d outbox partitions are out of range: use 1 to %d", partitions, MaxPartitions)
	}
	l, _, err := Load(ctx, m.Store)
	if err != nil {
		return Layout{}, err
	}
	topics := l.Topics
	if len(topics) == 0 {
		d, err := m.Store.Deployment(ctx)
		if err != nil {
			return Layout{}, fmt.Errorf("read the deployment: %w; a new one is made with the number that it is to have", err)
		}
		topics = []Topic{{Name: TopicName(m.prefix(), 0), Partitions: d.OutboxPartitions, State: Open}}
	}
	last := topics[len(topics)-1]
	if len(topics) > 1 && last.Partitions == partitions {
		return l, nil // begun before
	}
	switch {
	case len(topics) > 1 && (topics[len(topics)-2].State == Open || topics[len(topics)-2].State == Sealed):
		return l, fmt.Errorf("%w: the migration to %d partitions is under way; finish it first", ErrNotNow, last.Partitions)
	case len(topics) == maxTopics:
		return l, fmt.Errorf("the outbox was migrated %d times, which is all there can be", maxTopics-1)
	case partitions <= last.Partitions:
		return l, fmt.Errorf("the outbox has %d partitions: use more than that", last.Partitions)
	}
	if _, err := broker.DescribeTopic(ctx, m.Client, last.Name); err != nil {
		return l, err
	}
	next := Topic{Name: TopicName(m.prefix(), len(topics)), Partitions: partitions, State: Open}
	c := m.Topics
	c.OutboxTopic, c.OutboxPartitions = next.Name, partitions
	if err := broker.EnsureTopics(ctx, m.Client, c); err != nil {
		return l, err
	}
	if err := m.empty(ctx, next.Name); err != nil {
		return l, err
	}
	before := len(topics)
	return change(ctx, m.Store, func(l *Layout) (bool, error) {
		if len(l.Topics) > before || before == 1 && len(l.Topics) > 0 {
			if at := l.Topics[len(l.Topics)-1]; at.Partitions != partitions {
				return false, fmt.Errorf("%w: another migration, to %d partitions, was begun just now", ErrNotNow, at.Partitions)
			}
			return false, nil
		}
		l.Topics, l.Switched = append(append([]Topic(nil), topics...), next), false
		return true, nil
	})
}

// empty refuses a topic that has had records: it is somebody else's.
func (m *Migration) empty(ctx context.Context, name string) error {
	ends, err := kadm.NewClient(m.Client).ListEndOffsets(ctx, name)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("offsets of %s: %w", name, broker.Classify(err))
	}
	var used error
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			used = fmt.Errorf("topic %s: %w: it has had records; delete it, or use another topic prefix", name, broker.ErrTopicMismatch)
		}
	})
	return used
}

// sealedBytes is the max.message.bytes of a sealed topic: no batch is that small.
const sealedBytes = "1"

// Seal ends the topic that writers have left. The broker is told to refuse every
// record, and each partition's leader is asked until it does: then no record can
// come any more, not even of a writer that has not switched, and the end is final.
func (m *Migration) Seal(ctx context.Context) (Layout, error) {
	l, _, err := Load(ctx, m.Store)
	if err != nil {
		return Layout{}, err
	}
	if len(l.Topics) == 0 {
		return l, ErrNone
	}
	g := len(l.Topics) - 2
	old := l.Topics[g]
	if old.State != Open {
		return l, nil
	}
	if !l.Switched {
		return l, fmt.Errorf("%w: no writer has switched: set outbox_partitions to %d and start the node again", ErrNotNow, l.Topics[g+1].Partitions)
	}
	adm := kadm.NewClient(m.Client)
	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr(sealedBytes)}}, old.Name)
	if err == nil {
		for _, a := range altered {
			err = errors.Join(err, a.Err)
		}
	}
	if err != nil {
		return l, fmt.Errorf("set max.message.bytes of %s: %w", old.Name, broker.Classify(err))
	}
	for p := range int32(old.Partitions) {
		if err := m.refused(ctx, old.Name, p); err != nil {
			return l, err
		}
	}
	listed, err := adm.ListEndOffsets(ctx, old.Name)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return l, fmt.Errorf("offsets of %s: %w", old.Name, broker.Classify(err))
	}
	ends := make([]int64, old.Partitions)
	for p := range ends {
		o, ok := listed.Lookup(old.Name, int32(p))
		if !ok {
			return l, fmt.Errorf("offsets of %s partition %d: %w", old.Name, p, broker.ErrTopicMissing)
		}
		ends[p] = o.Offset
	}
	return change(ctx, m.Store, func(l *Layout) (bool, error) {
		t := &l.Topics[g]
		if t.State != Open {
			return false, nil
		}
		t.State, t.Ends, t.SealedMs = Sealed, ends, m.now().UnixMilli()
		return true, nil
	})
}

// probe is a record that every reader of the outbox passes over.
func probe() ([]byte, error) {
	return records.EncodeAnswer(&logv1.AnswerRecord{
		SchemaVersion: uint32(records.SchemaVersion), TenantId: "laneway", ConversationId: "outbox-migration", SenderId: "laneway", ClientMessageId: "probe",
		RequestDigest: make([]byte, 32),
	})
}

// refused waits until a partition's leader refuses records for their size.
func (m *Migration) refused(ctx context.Context, topic string, partition int32) error {
	value, err := probe()
	if err != nil {
		return err
	}
	for {
		done := make(chan error, 1)
		m.Client.Produce(ctx, &kgo.Record{
			Topic: topic, Partition: partition, Value: value, Headers: []kgo.RecordHeader{{Key: records.OutboxAnswer.Header()}},
		}, func(_ *kgo.Record, err error) { done <- err })
		select {
		case err = <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
			return nil
		}
		if err != nil && !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) {
			return fmt.Errorf("seal %s partition %d: %w", topic, partition, broker.Classify(err))
		}
		select { // the setting is on its way to the leader
		case <-ctx.Done():
			return fmt.Errorf("seal %s partition %d: its leader does not refuse records yet: %w", topic, partition, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Left returns how many records of the sealed topic are still to be dispatched.
func (m *Migration) Left(ctx context.Context, l *Layout) (int64, error) {
	g := len(l.Topics) - 2
	return Left(ctx, kadm.NewClient(m.Client), m.Store, g, l.Topics[g])
}

// Offsets reads committed positions. *kadm.Client is one.
type Offsets interface {
	FetchOffsetsForTopics(ctx context.Context, group string, topics ...string) (kadm.OffsetResponses, error)
}

// Left returns how many records of a sealed topic are still to be dispatched: none
// when every position is at its end, and, with a store that may lose its last
// writes, when the store says that the fences of everything below are there.
func Left(ctx context.Context, adm Offsets, fences fanout.FenceStore, generation int, t Topic) (int64, error) {
	if t.State != Open && t.State != Sealed {
		return 0, nil
	}
	committed, err := adm.FetchOffsetsForTopics(ctx, fanout.ConsumerGroup, t.Name)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, fmt.Errorf("read the positions of %s: %w", t.Name, broker.Classify(err))
	}
	left := int64(0)
	for p, end := range t.Ends {
		at := int64(0)
		if o, ok := committed.Lookup(t.Name, int32(p)); ok {
			if o.Err != nil {
				return 0, fmt.Errorf("read the position of %s partition %d: %w", t.Name, p, broker.Classify(o.Err))
			}
			at = max(o.At, 0)
		}
		if fences.Incarnation() != "" {
			kept, err := fanout.KeptPosition(ctx, fences, generation, t.Partitions, int32(p))
			if err != nil {
				return 0, err
			}
			at = min(at, kept)
		}
		left += max(end-at, 0)
	}
	return left, nil
}

// Drained notes that the sealed topic is dispatched up to its end, or says how
// much is left (ErrNotNow).
func (m *Migration) Drained(ctx context.Context) (Layout, error) {
	l, _, err := Load(ctx, m.Store)
	if err != nil {
		return l, err
	}
	if len(l.Topics) == 0 {
		return l, ErrNone
	}
	g := len(l.Topics) - 2
	switch l.Topics[g].State {
	case Open:
		return l, fmt.Errorf("%w: the topic %s is not sealed", ErrNotNow, l.Topics[g].Name)
	case Drained, Deleted:
		return l, nil
	}
	left, err := m.Left(ctx, &l)
	if err != nil {
		return l, err
	}
	if left > 0 {
		return l, fmt.Errorf("%w: %d records of %s are to be dispatched", ErrNotNow, left, l.Topics[g].Name)
	}
	return change(ctx, m.Store, func(l *Layout) (bool, error) {
		if l.Topics[g].State != Sealed {
			return false, nil
		}
		l.Topics[g].State = Drained
		return true, nil
	})
}

// Delete deletes the topics that were drained, and returns their names. One that
// may still hold records that somebody could want is refused (ErrNotNow).
func (m *Migration) Delete(ctx context.Context) ([]string, error) {
	l, _, err := Load(ctx, m.Store)
	if err != nil {
		return nil, err
	}
	if len(l.Topics) == 0 {
		return nil, ErrNone
	}
	var deleted []string
	for g := range l.Topics[:len(l.Topics)-1] {
		t := l.Topics[g]
		if t.State == Open || t.State == Sealed {
			return deleted, fmt.Errorf("%w: the topic %s is %s, and not dispatched up to its end", ErrNotNow, t.Name, t.State)
		}
		at, err := broker.DescribeTopic(ctx, m.Client, t.Name)
		if errors.Is(err, broker.ErrTopicMissing) && t.State == Deleted {
			continue
		}
		if err != nil && !errors.Is(err, broker.ErrTopicMissing) {
			return deleted, err
		}
		if err == nil {
			retention := at.Retention()
			if retention < 0 {
				return deleted, fmt.Errorf("%w: the topic %s keeps its records for ever (retention.ms); set how long they are wanted", ErrNotNow, t.Name)
			}
			if after := t.DeleteAfter(retention); m.now().Before(after) {
				return deleted, fmt.Errorf("%w: the topic %s was sealed at %s and keeps records for %s: delete it after %s", ErrNotNow, t.Name,
					time.UnixMilli(t.SealedMs).UTC().Format(time.RFC3339), retention, after.UTC().Format(time.RFC3339))
			}
		}
		// First the layout, so that nobody looks for it any more.
		if _, err := change(ctx, m.Store, func(l *Layout) (bool, error) {
			if l.Topics[g].State == Deleted {
				return false, nil
			}
			l.Topics[g].State = Deleted
			return true, nil
		}); err != nil {
			return deleted, err
		}
		r, err := kadm.NewClient(m.Client).DeleteTopic(ctx, t.Name)
		if err == nil {
			err = r.Err
		}
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return deleted, fmt.Errorf("delete the topic %s: %w", t.Name, broker.Classify(err))
		}
		deleted = append(deleted, t.Name)
	}
	return deleted, nil
}
