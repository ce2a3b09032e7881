package fanout

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/laneway/laneway/internal/turn"
)

// committer commits the positions of all partitions together: one request at a
// time, no more often than the interval, and everything again once in a while.
type committer struct {
	log   Log
	cfg   Config
	wake  chan struct{}
	one   turn.Turn // held over a request: an older position must not come last
	mu    sync.Mutex
	dirty map[int32]int64 // acknowledged, not committed
	known map[int32]int64 // committed
}

func newCommitter(log Log, cfg Config) *committer {
	return &committer{log: log, cfg: cfg, one: turn.New(), wake: make(chan struct{}, 1), dirty: make(map[int32]int64), known: make(map[int32]int64)}
}

// put says that everything of a partition below position is acknowledged.
func (c *committer) put(partition int32, position int64) {
	c.mu.Lock()
	c.dirty[partition] = position
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// committed returns the partition's durable position, and false before the first
// commit of this process.
func (c *committer) committed(partition int32) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.known[partition]
	return at, ok
}

// run commits until end is closed, then once more.
func (c *committer) run(end <-chan struct{}) {
	again := time.NewTicker(c.cfg.RecommitInterval)
	defer again.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-end:
			c.commit(5 * time.Second)
			return
		case <-again.C:
			c.repeat()
		case <-c.wake:
		}
		c.commit(20 * time.Second)
		pause.Reset(c.cfg.CommitInterval)
		select {
		case <-end:
			c.commit(5 * time.Second)
			return
		case <-pause.C:
		}
	}
}

// repeat makes the known positions dirty again.
func (c *committer) repeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, at := range c.known {
		if _, newer := c.dirty[p]; !newer {
			c.dirty[p] = at
		}
	}
}

// commit commits what was put, and reports false when some of it has to be tried
// again.
func (c *committer) commit(timeout time.Duration) bool {
	c.one.Wait()
	defer c.one.Leave()
	// Another instance may have gone on from here: what this one has is true, but
	// would set the other's position back.
	if c.cfg.Claims != nil && !c.cfg.Claims.Trusted() {
		return false
	}
	c.mu.Lock()
	batch := maps.Clone(c.dirty)
	c.mu.Unlock()
	if len(batch) == 0 {
		return true
	}
	var offsets kadm.Offsets
	for p, at := range batch {
		offsets.AddOffset(c.cfg.Topics.Outbox, p, at, -1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	responses, err := c.log.CommitOffsets(ctx, ConsumerGroup, offsets)
	if err != nil {
		c.cfg.Logger.Warn("commit of outbox positions failed; it is tried again", "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := err != nil
	for p, at := range batch {
		r, ok := responses.Lookup(c.cfg.Topics.Outbox, p)
		if err != nil || !ok || r.Err != nil {
			failed = true
			if ok && r.Err != nil {
				c.cfg.Logger.Warn("commit of an outbox position failed; it is tried again", "partition", p, "err", r.Err)
			}
			continue
		}
		if c.dirty[p] == at {
			delete(c.dirty, p)
		}
		c.known[p] = at
	}
	if failed {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return !failed
}
