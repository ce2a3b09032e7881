package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// PresenceTopic returns the name of the presence topic under a prefix. It holds
// what is online (design 4), not what was committed: a deployment may go without
// it, and none of its problems keeps a node from its work.
func PresenceTopic(prefix string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + ".presence"
}

// presenceSegment is how long a segment takes records. Compaction and retention
// leave the one that does alone.
const presenceSegment = 10 * time.Minute

// PresenceRetention is how long the topic keeps records, where it is made: what
// is older than the time-to-live of an event counts for nothing.
func PresenceRetention(ttl time.Duration) time.Duration { return max(time.Hour, 4*ttl) }

// EnsurePresenceTopic creates the presence topic if it is missing. One that is
// there, with any number of partitions, is left as it is.
func EnsurePresenceTopic(ctx context.Context, cl *kgo.Client, c TopicsConfig, ttl time.Duration) error {
	c = c.withDefaults()
	adm := kadm.NewClient(cl)
	name := PresenceTopic(c.Prefix)
	if _, err := describe(ctx, adm, name); !errors.Is(err, ErrTopicMissing) {
		return err
	}
	ms := func(d time.Duration) *string { return kadm.StringPtr(strconv.FormatInt(d.Milliseconds(), 10)) }
	configs := map[string]*string{
		"cleanup.policy":         kadm.StringPtr("compact,delete"),
		"retention.ms":           ms(PresenceRetention(ttl)),
		"delete.retention.ms":    ms(PresenceRetention(ttl)),
		"segment.ms":             ms(presenceSegment),
		"message.timestamp.type": kadm.StringPtr("LogAppendTime"),
	}
	if c.Replication > 1 {
		configs["min.insync.replicas"] = kadm.StringPtr("2")
	}
	if _, err := adm.CreateTopic(ctx, 1, int16(c.Replication), configs, name); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", name, Classify(err))
	}
	_, err := describeNew(ctx, adm, name)
	return err
}

// CheckPresenceTopic returns what should be better about the presence topic. It
// changes nothing, and what it finds are warnings.
func CheckPresenceTopic(ctx context.Context, cl *kgo.Client, c TopicsConfig, ttl time.Duration) []Problem {
	name := PresenceTopic(c.Prefix)
	t, err := describe(ctx, kadm.NewClient(cl), name)
	switch {
	case errors.Is(err, ErrTopicMissing):
		return []Problem{{
			Subject: "topic " + name, What: "it does not exist yet", cause: ErrTopicMissing, Warning: true,
			Fix: "Nothing, if the node may create it; else run `laneway setup`, or set presence.enabled=false",
		}}
	case err != nil:
		return []Problem{{Subject: "topic " + name, What: err.Error(), cause: err, Warning: true, Fix: "Check the broker's log and this user's rights (describe, describe configs)"}}
	}
	return t.presenceWarnings(ttl)
}

func (t *TopicState) presenceWarnings(ttl time.Duration) []Problem {
	var ps []Problem
	warn := func(what, fix string) {
		ps = append(ps, Problem{Subject: "topic " + t.Name, What: what, Fix: fix, Warning: true})
	}
	if policy := t.Configs["cleanup.policy"]; !strings.Contains(policy, "compact") {
		warn(fmt.Sprintf("cleanup.policy is %q: every event is kept, and a start reads them all", policy), "Set cleanup.policy=compact,delete")
	}
	if r := t.Retention(); strings.Contains(t.Configs["cleanup.policy"], "delete") && r >= 0 && r < ttl {
		warn(fmt.Sprintf("retention.ms is %s, below presence.ttl: a node that starts does not see devices that are online", r), fmt.Sprintf("Set retention.ms=%d or more", PresenceRetention(ttl).Milliseconds()))
	}
	if typ := t.Configs["message.timestamp.type"]; typ != "LogAppendTime" {
		warn(fmt.Sprintf("message.timestamp.type is %q: a gateway's clock that runs ahead is believed", typ), "Set message.timestamp.type=LogAppendTime")
	}
	return ps
}
