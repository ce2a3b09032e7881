package node

import (
	"net/http"

	"github.com/laneway/laneway/config"
)

// startCoordinator starts what `laneway coordinate` runs: the coordinator beside
// the store and the log of a deployment, with health and metrics of its own.
func (n *Node) startCoordinator() error {
	n.ready.done("temporal") // it needs none
	if err := n.StartFanout(); err != nil {
		return err
	}
	n.ready.done("node")
	return nil
}

// CheckCoordinator returns what keeps settings from being those of a coordinator
// of its own.
func CheckCoordinator(c *config.Config) error {
	if c.Shared() {
		// A wrong set was reported with the settings.
		if own, err := c.Fanout.Own(c.OutboxPartitions); err == nil && len(own) == 0 && !c.Fanout.Standby {
			return &config.Error{Problems: []config.Problem{{
				Key: "fanout.partitions", Source: "settings", Message: "a coordinator without partitions of its own and without standby works none",
				Fix: "set its own partitions (--fanout-partitions 0-31), or let it stand by (--fanout-standby)",
			}}}
		}
		return nil
	}
	return &config.Error{Problems: []config.Problem{{
		Key: "store.url", Source: "settings", Message: "a coordinator works beside nodes, on their store and their log, and this store or this log is a machine's own",
		Fix: "set store.url to redis:// or cql://, and log.brokers",
	}}}
}

// noAPI answers what a coordinator is asked beside health and metrics.
func noAPI(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this process is a coordinator: it serves health and metrics, and no API", http.StatusNotFound)
}
