package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Problem is one thing that keeps the log from being used, or that should be
// better, with what to do about it.
type Problem struct {
	Subject string // the topic, or "broker"
	What    string
	Fix     string
	// Warning: the deployment works in spite of it.
	Warning bool
	cause   error
}

// String is one line for a person.
func (p Problem) String() string { return p.Subject + ": " + p.What + ". " + p.Fix }

func (p Problem) err() error {
	if p.cause != nil {
		return fmt.Errorf("%s: %w: %s. %s", p.Subject, p.cause, p.What, p.Fix)
	}
	return fmt.Errorf("%s: %w: %s. %s", p.Subject, ErrTopicMismatch, p.What, p.Fix)
}

// problem returns what makes the topic unusable, or nil.
func (t *TopicState) problem(want topicWant) *Problem {
	if t.Partitions != want.partitions {
		return &Problem{
			Subject: "topic " + t.Name, What: fmt.Sprintf("it has %d partitions, the configuration says %d", t.Partitions, want.partitions),
			Fix: "The number never changes once there is data: correct the configuration, or choose another topic prefix for a new deployment",
		}
	}
	if policy := t.Configs["cleanup.policy"]; policy != "delete" {
		return &Problem{
			Subject: "topic " + t.Name, What: fmt.Sprintf("cleanup.policy is %q, which removes records that Laneway needs", policy),
			Fix: "Set cleanup.policy=delete",
		}
	}
	if t.Replication >= 2 {
		if n, err := strconv.Atoi(t.Configs["min.insync.replicas"]); err != nil || n < 2 {
			return &Problem{
				Subject: "topic " + t.Name, What: fmt.Sprintf("min.insync.replicas is %q with %d replicas: an acknowledged record could be on one disk only", t.Configs["min.insync.replicas"], t.Replication),
				Fix: "Set min.insync.replicas=2 or more",
			}
		}
		if t.Configs["unclean.leader.election.enable"] == "true" {
			return &Problem{
				Subject: "topic " + t.Name, What: "unclean.leader.election.enable is true: acknowledged records can be lost",
				Fix: "Set unclean.leader.election.enable=false",
			}
		}
	}
	return nil
}

// warnings returns what works but should be better.
func (t *TopicState) warnings(want topicWant) []Problem {
	var ps []Problem
	warn := func(what, fix string) {
		ps = append(ps, Problem{Subject: "topic " + t.Name, What: what, Fix: fix, Warning: true})
	}
	if r := t.Retention(); r >= 0 && r < 24*time.Hour {
		warn(fmt.Sprintf("retention.ms is %s: a shard that is behind for longer stops", r), "Set retention.ms to 24 h or more")
	}
	if typ := t.Configs["message.timestamp.type"]; typ != "LogAppendTime" {
		warn(fmt.Sprintf("message.timestamp.type is %q: retention and the check of committed_at trust the writers' clocks", typ), "Set message.timestamp.type=LogAppendTime")
	}
	if n, err := strconv.Atoi(t.Configs["max.message.bytes"]); err == nil && n < want.maxBytes {
		warn(fmt.Sprintf("max.message.bytes is %d: the largest records are refused", n), fmt.Sprintf("Set max.message.bytes=%d", want.maxBytes))
	}
	return ps
}

// Check looks at the broker and at every topic and returns all problems, those
// that prevent a start first. It changes nothing.
func Check(ctx context.Context, cl *kgo.Client, c TopicsConfig) []Problem {
	c = c.withDefaults()
	if err := Ping(ctx, cl); err != nil {
		return []Problem{{
			Subject: "broker", What: err.Error(), cause: ErrUnreachable,
			Fix: "Start it, or correct log.brokers (" + strings.Join(seeds(cl), ",") + ")",
		}}
	}
	adm := kadm.NewClient(cl)
	var fatal, warnings []Problem
	for _, want := range c.partitions() {
		t, err := describe(ctx, adm, want.name)
		switch {
		case errors.Is(err, ErrTopicMissing):
			warnings = append(warnings, Problem{
				Subject: "topic " + want.name, What: "it does not exist yet", cause: ErrTopicMissing, Warning: true,
				Fix: "Nothing, if the node may create it at its start; else run `laneway setup`",
			})
			continue
		case err != nil:
			fatal = append(fatal, Problem{Subject: "topic " + want.name, What: err.Error(), cause: err, Fix: "Check the broker's log and this user's rights (describe, describe configs)"})
			continue
		}
		if p := t.problem(want); p != nil {
			fatal = append(fatal, *p)
		}
		if len(t.Leaderless) > 0 {
			fatal = append(fatal, Problem{Subject: "topic " + t.Name, What: fmt.Sprintf("partitions %v have no leader", t.Leaderless), Fix: "Bring the brokers that hold them back"})
		}
		warnings = append(warnings, t.warnings(want)...)
	}
	return append(fatal, warnings...)
}
