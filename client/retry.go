package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laneway/laneway/api/reason"
)

// pauses grow from first to longest, doubling, with jitter so that many clients
// do not come back together.
type pauses struct{ first, longest time.Duration }

// nth returns the pause before repetition n, counted from 0.
func (p pauses) nth(n int) time.Duration {
	d := p.longest
	if n < 16 {
		d = min(d, p.first<<n)
	}
	return d/2 + rand.N(d/2+1)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// session remembers the node that served one user last, so that a move is
// followed once and not once a call.
type session struct {
	c *Client
	n *node
}

func (c *Client) session() *session { return &session{c, c.base} }

// maxHops bounds how many nodes may send a call on to one another before it
// counts as a repetition.
const maxHops = 4

// longestAdvice is how long a server may advise to wait before that is the
// caller's decision: a tenant deep in debt with its quota is told minutes.
const longestAdvice = 10 * time.Second

// do calls f until it succeeds, fails for good, or the retries are used up.
// Everything the client sends may be repeated: reads change nothing, commits and
// membership changes carry a client_message_id.
func (s *session) do(ctx context.Context, f func(*node) error) error {
	hops, tries := 0, 0
	for {
		at := s.n
		err := fromConnect(ctx, at.url, f(at))
		var e *Error
		if err == nil || !errors.As(err, &e) {
			return err
		}
		if e.Reason == reason.ShardMoved && e.Address != "" && hops < maxHops {
			hops++
			s.n = s.c.at(e.Address)
			continue
		}
		// A node that a move led to may be gone by now: the first one knows more.
		lost := e.Reason == Unreachable && at != s.c.base
		if !lost && !e.passing() || tries >= s.c.retries {
			return err
		}
		s.n, hops = s.c.base, 0
		pause := s.c.pause.nth(tries)
		if e.RetryAfter > longestAdvice {
			return err // the caller knows better whether to wait
		}
		if e.RetryAfter > 0 {
			pause = e.RetryAfter + rand.N(e.RetryAfter/4+1) // not all at once
		}
		tries++
		if werr := wait(ctx, pause); werr != nil {
			return fmt.Errorf("%w; the last answer was %w", werr, err)
		}
	}
}
