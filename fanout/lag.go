package fanout

import (
	"context"
	"time"
)

// measureLag reads the ends of all partitions again and again: a partition whose
// fetching pauses, or that is stopped, learns of no new records by itself, and it
// is the one whose lag matters.
func (c *Coordinator) measureLag(ctx context.Context) {
	tick := time.NewTicker(c.cfg.LagInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ends, err := c.log.ListEndOffsets(ctx, c.cfg.Topics.Outbox)
		if err != nil && len(ends) == 0 {
			continue // readiness and the waiting partitions tell
		}
		c.mu.Lock()
		for number, p := range c.partitions {
			if end, ok := ends.Lookup(c.cfg.Topics.Outbox, number); ok && end.Err == nil {
				p.metrics.lag.Set(float64(max(end.Offset-p.position.Load(), 0)))
			}
		}
		c.mu.Unlock()
	}
}
