package node

import (
	"time"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
)

// controlActivities are what the workflows of the control queue call on this
// node: one value for each workflow, its methods are activities.
func (n *Node) controlActivities() []any {
	return []any{
		activities.NewRenumber(n.commits, func(g mailbox.Group, took time.Duration) {
			n.metrics.RenumberClosed.Observe(took.Seconds())
			n.log.Info("a group was renumbered", "tenant", g.Tenant, "group", g.ID, "closed_to_writes_for", took)
		}),
		n.retentionActivities(),
	}
}
