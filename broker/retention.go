package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// CheckRetention verifies that the outbox and the dispatch topic keep records for
// at least need: what a store may lose is read again from them (design 3, 8.4).
// The error, [ErrTopicMismatch], names both values.
func CheckRetention(ctx context.Context, cl *kgo.Client, topics Topics, need time.Duration) error {
	for _, name := range []string{topics.Outbox, topics.Dispatch} {
		t, err := DescribeTopic(ctx, cl, name)
		if err != nil {
			return err
		}
		if p := t.tooShort(need); p != nil {
			return p.err()
		}
	}
	return nil
}

// tooShort returns what is wrong with a retention below need, or nil.
func (t *TopicState) tooShort(need time.Duration) *Problem {
	r := t.Retention()
	if r < 0 || r >= need {
		return nil
	}
	return &Problem{
		Subject: "topic " + t.Name,
		What:    fmt.Sprintf("retention.ms is %s, and the store needs %s of the log to make good the writes that it may lose", r, need),
		Fix:     fmt.Sprintf("Set retention.ms=%d or more", need.Milliseconds()),
	}
}
