package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics names the three topics of a deployment.
type Topics struct {
	Outbox     string
	Dispatch   string
	Quarantine string
}

// DefaultPrefix is the prefix of the topic names unless configured otherwise.
const DefaultPrefix = "laneway"

// NewTopics returns the names under a prefix.
func NewTopics(prefix string) Topics {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return Topics{prefix + ".outbox", prefix + ".dispatch", prefix + ".quarantine"}
}

// TopicsConfig says how the topics of a deployment must be. The zero value of a
// field means its default.
type TopicsConfig struct {
	Prefix string
	// OutboxTopic is the outbox's topic where it is not the first one (package
	// outbox).
	OutboxTopic      string
	OutboxPartitions int // of that topic, immutable; default 64
	Shards           int // partitions of the dispatch topic; immutable; required
	// Replication of topics that are created; default the broker's own. Above 1,
	// two in-sync replicas are required for every write and an out-of-sync one
	// never becomes leader.
	Replication int
	// Retention of topics that are created; default 7 days. RetentionBytes is per
	// partition; default unlimited.
	Retention      time.Duration
	RetentionBytes int64
	// SegmentBytes of topics that are created; default the broker's own.
	SegmentBytes int64
}

// DefaultOutboxPartitions and DefaultRetention are what TopicsConfig's zero
// values mean.
const (
	DefaultOutboxPartitions = 64
	DefaultRetention        = 7 * 24 * time.Hour
)

// Topics returns the names.
func (c TopicsConfig) Topics() Topics {
	t := NewTopics(c.Prefix)
	if c.OutboxTopic != "" {
		t.Outbox = c.OutboxTopic
	}
	return t
}

func (c TopicsConfig) withDefaults() TopicsConfig {
	if c.OutboxPartitions == 0 {
		c.OutboxPartitions = DefaultOutboxPartitions
	}
	if c.Replication == 0 {
		c.Replication = -1
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.RetentionBytes == 0 {
		c.RetentionBytes = -1
	}
	return c
}

// partitions returns the wanted number of partitions of each topic, in the
// order in which topics are made.
func (c TopicsConfig) partitions() []topicWant {
	t := c.Topics()
	return []topicWant{
		{t.Outbox, c.OutboxPartitions, MaxMessageBytes},
		{t.Dispatch, c.Shards, MaxMessageBytes},
		{t.Quarantine, 1, MaxQuarantineMessageBytes},
	}
}

type topicWant struct {
	name       string
	partitions int
	maxBytes   int
}

// EnsureTopics creates the topics that are missing and verifies those that are
// there; it never changes one. It is safe to repeat and to run on several nodes
// at once.
func EnsureTopics(ctx context.Context, cl *kgo.Client, c TopicsConfig) error {
	c = c.withDefaults()
	if c.Shards < 1 || c.OutboxPartitions < 1 {
		return fmt.Errorf("%w: %d shards and %d outbox partitions; both must be at least 1", ErrTopicMismatch, c.Shards, c.OutboxPartitions)
	}
	adm := kadm.NewClient(cl)
	for _, want := range c.partitions() {
		d, err := describe(ctx, adm, want.name)
		if errors.Is(err, ErrTopicMissing) {
			if err := create(ctx, adm, want, c); err != nil {
				return err
			}
			// Another node may have won the race with other settings.
			d, err = describeNew(ctx, adm, want.name)
		}
		if err != nil {
			return err
		}
		if p := d.problem(want); p != nil {
			return p.err()
		}
	}
	return nil
}

// describeNew waits until a topic that was just created is known: the client's
// metadata and those of a cluster's brokers follow a little later.
func describeNew(ctx context.Context, adm *kadm.Client, name string) (*TopicState, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		d, err := describe(ctx, adm, name)
		if !errors.Is(err, ErrTopicMissing) {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func create(ctx context.Context, adm *kadm.Client, want topicWant, c TopicsConfig) error {
	configs := map[string]*string{
		"cleanup.policy":   kadm.StringPtr("delete"),
		"retention.ms":     kadm.StringPtr(strconv.FormatInt(c.Retention.Milliseconds(), 10)),
		"retention.bytes":  kadm.StringPtr(strconv.FormatInt(c.RetentionBytes, 10)),
		"compression.type": kadm.StringPtr("producer"),
		// Records are dated by the broker: committed_at is checked against it and
		// retention must not trust a writer's clock.
		"message.timestamp.type": kadm.StringPtr("LogAppendTime"),
		"max.message.bytes":      kadm.StringPtr(strconv.Itoa(want.maxBytes)),
	}
	if c.SegmentBytes > 0 {
		configs["segment.bytes"] = kadm.StringPtr(strconv.FormatInt(c.SegmentBytes, 10))
	}
	if c.Replication > 1 {
		configs["min.insync.replicas"] = kadm.StringPtr("2")
		configs["unclean.leader.election.enable"] = kadm.StringPtr("false")
	}
	_, err := adm.CreateTopic(ctx, int32(want.partitions), int16(c.Replication), configs, want.name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s with %d partitions: %w", want.name, want.partitions, Classify(err))
	}
	return nil
}

// TopicState is a topic as the broker has it.
type TopicState struct {
	Name        string
	Partitions  int
	Replication int
	// Leaderless holds the partitions that nobody serves just now.
	Leaderless []int32
	Configs    map[string]string
}

// Retention returns the topic's retention.ms; negative for unlimited.
func (t *TopicState) Retention() time.Duration {
	ms, err := strconv.ParseInt(t.Configs["retention.ms"], 10, 64)
	if err != nil || ms < 0 {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

func (t *TopicState) retentionBytes() int64 {
	n, err := strconv.ParseInt(t.Configs["retention.bytes"], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// DescribeTopic reads a topic's partitions and settings.
func DescribeTopic(ctx context.Context, cl *kgo.Client, name string) (*TopicState, error) {
	return describe(ctx, kadm.NewClient(cl), name)
}

func describe(ctx context.Context, adm *kadm.Client, name string) (*TopicState, error) {
	details, err := adm.ListTopics(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up topic %s: %w", name, Classify(err))
	}
	d, ok := details[name]
	if !ok || d.Err != nil {
		if !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("topic %s: %w", name, ErrTopicMissing)
		}
		return nil, fmt.Errorf("look up topic %s: %w", name, d.Err)
	}
	t := &TopicState{Name: name, Partitions: len(d.Partitions), Configs: make(map[string]string)}
	for _, p := range d.Partitions.Sorted() {
		t.Replication = max(t.Replication, len(p.Replicas))
		if p.Leader < 0 {
			t.Leaderless = append(t.Leaderless, p.Partition)
		}
	}
	configs, err := adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the settings of topic %s: %w", name, Classify(err))
	}
	rc, err := configs.On(name, nil)
	if err == nil {
		err = rc.Err
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of topic %s: %w", name, err)
	}
	for _, kv := range rc.Configs {
		t.Configs[kv.Key] = kv.MaybeValue()
	}
	return t, nil
}
