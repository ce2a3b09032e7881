package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

// chatPairs is how many single chats flow, and chatEvery how often each sends.
const (
	chatPairs = 16
	chatEvery = 200 * time.Millisecond
)

// Latency sums up the single chats of one phase: from the commit's answer to
// the recipient's Watch telling of it, that is to W of its lane having advanced.
type Latency struct {
	Messages int     `json:"messages"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
}

// chats are single chats that flow until stopped.
type chats struct {
	cl     *client.Client
	tenant string
	run    string // makes client_message_ids unique over runs
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	phase []time.Duration
	err   error
}

func startChats(ctx context.Context, cl *client.Client, tenant, run string) *chats {
	ctx, stop := context.WithCancel(ctx)
	c := &chats{cl: cl, tenant: tenant, run: run, stop: stop}
	for i := range chatPairs {
		c.wg.Add(1)
		go func() {
			defer c.wg.Done()
			if err := c.pair(ctx, i); err != nil && ctx.Err() == nil {
				c.fail(err)
			}
		}()
	}
	return c
}

// fail notes what ended a pair. What ends all of them is told once.
func (c *chats) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// pair sends messages in one single chat and waits for each at the recipient.
func (c *chats) pair(ctx context.Context, i int) error {
	from, to := fmt.Sprintf("chat-%d-a", i), fmt.Sprintf("chat-%d-b", i)
	mb := client.Mailbox{Tenant: c.tenant, User: to}
	// What an earlier run left is not measured.
	cursor, err := c.cl.PullAll(ctx, mb, "", func(*client.Page) error { return nil })
	if err != nil {
		return err
	}
	ticks := make(chan struct{}, 1)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = c.cl.Watch(watch, mb, cursor, func(*lanewayv1.WatchResponse) error {
			select {
			case ticks <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		res, err := c.cl.Commit(ctx, &lanewayv1.CommitRequest{
			TenantId: c.tenant, ConversationId: fmt.Sprintf("chat-%d", i), ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
			SenderId: from, RecipientIds: []string{from, to}, ClientMessageId: fmt.Sprintf("%s-%d", c.run, n), Body: []byte("hello"),
		})
		if err != nil {
			return fmt.Errorf("single chat %d: %w", i, err)
		}
		committed := time.Now()
		for seen := false; !seen; {
			p, err := c.cl.Pull(ctx, &lanewayv1.PullRequest{TenantId: c.tenant, UserId: to, Cursor: cursor})
			if err != nil {
				return err
			}
			cursor = p.Cursor
			for _, e := range p.Entries {
				seen = seen || e.MessageId == res.MessageId
			}
			if seen {
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticks:
			case <-time.After(time.Second): // a watch ends when the node starts over
			}
		}
		c.mu.Lock()
		c.phase = append(c.phase, time.Since(committed))
		c.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(chatEvery - min(time.Since(began), chatEvery-time.Millisecond)):
		}
	}
	return nil
}

// takePhase returns the latencies since the last call.
func (c *chats) takePhase() Latency {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.phase
	c.phase = nil
	l := Latency{Messages: len(d)}
	if len(d) == 0 {
		return l
	}
	slices.Sort(d)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	l.P50, l.P99, l.Max = ms(d[len(d)/2]), ms(d[min(len(d)*99/100, len(d)-1)]), ms(d[len(d)-1])
	return l
}

func (c *chats) end() error {
	c.stop()
	c.wg.Wait()
	return c.err
}
