package node

import (
	"context"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/shadow"
)

// withShadow puts the second store of the settings behind the first (design 3.4).
// The shadow is opened beside the node, as often as it takes: one that is down or
// fails is told by metrics and the log, and never by the node's own state.
func (n *Node) withShadow(primary mailbox.Store) mailbox.Store {
	c := *n.cfg
	c.Store = n.cfg.Store.Shadow()
	log := n.log.With("part", "shadow", "store", c.Store.Shown())
	open := func(ctx context.Context) (mailbox.Store, error) {
		return OpenStore(ctx, &c, StoreOptions{Logger: log, OnFatal: func(err error) { log.Warn("the shadow store ended; it is opened again", "error", err) }})
	}
	return shadow.New(primary, open, shadow.Options{
		Sample: float64(n.cfg.Store.ShadowSample) / 100, Logger: log,
		Hooks: shadow.Hooks{
			Scan: func(o shadow.Outcome) { n.metrics.ShadowScans.Inc(string(o)) },
			Lag:  func(entries int) { n.metrics.ShadowLag.Set(float64(entries)) },
			Lost: func(why shadow.Loss, writes int) { n.metrics.ShadowLost.Add(string(why), writes) },
		},
	})
}
