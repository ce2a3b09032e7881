package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/workers"
)

// Problem is one thing that keeps a node from running, with its fix.
type Problem struct {
	What string
	Fix  string
}

// minFreeBytes is the free disk space below which check complains.
const minFreeBytes = 1 << 30

// Check looks at everything a node needs and changes nothing. passed is called
// for each thing that is right.
func Check(ctx context.Context, c *config.Config, passed func(string)) []Problem {
	var problems []Problem
	bad := func(fix, format string, args ...any) {
		problems = append(problems, Problem{fmt.Sprintf(format, args...), fix})
	}
	if err := api.CheckListen(c.Listen, false, false); err != nil {
		bad("set listen to a loopback address, for example 127.0.0.1:7480", "%v", err)
	} else if l, err := net.Listen("tcp", c.Listen); err != nil {
		bad("stop what listens there (another node?), or set listen to another port", "the API address %s cannot be bound: %v", c.Listen, err)
	} else {
		_ = l.Close()
		passed("API address " + c.Listen + " is free")
	}
	checkDir(c, passed, bad)
	checkLog(ctx, c, passed, bad)
	checkTemporal(ctx, c, passed, bad)
	return problems
}

func checkDir(c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	dir := c.DataDir
	for { // the nearest directory that exists
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".laneway-check-")
	if err != nil {
		bad("make the directory writable for this user, or set data_dir", "the data directory %s cannot be written: %v", c.DataDir, err)
		return
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err == nil {
		if free := st.Bavail * uint64(st.Bsize); free < minFreeBytes {
			bad("free some space, or set data_dir to another disk", "the data directory %s has %d MiB left, %d MiB are wanted", c.DataDir, free>>20, minFreeBytes>>20)
			return
		}
	}
	passed("data directory " + c.DataDir + " can be written")
	checkStore(c, passed, bad)
}

func checkStore(c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	d, ok, err := pebble.Inspect(c.StoreDir())
	switch {
	case errors.Is(err, mailbox.ErrStoreLocked):
		bad("stop the node that runs there, or set data_dir to another directory", "%v", err)
	case err != nil:
		bad("check the disk, and restore the data directory from a backup", "the store cannot be opened: %v", err)
	case !ok:
		passed("the store is new")
	case d.ShardCount != c.Shards || d.OutboxPartitions != c.OutboxPartitions:
		bad(fmt.Sprintf("set shards to %d and outbox_partitions to %d, or set data_dir to another directory", d.ShardCount, d.OutboxPartitions),
			"the store %s was made with %d shards and %d outbox partitions, the settings say %d and %d; they can never change",
			c.StoreDir(), d.ShardCount, d.OutboxPartitions, c.Shards, c.OutboxPartitions)
	default:
		passed(fmt.Sprintf("the store has %d shards and %d outbox partitions, as the settings say", d.ShardCount, d.OutboxPartitions))
	}
}

func checkLog(ctx context.Context, c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	if len(c.Log.Brokers) == 0 {
		passed("the log is embedded")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: c.Log.Brokers, ClientID: "laneway-check"})
	if err != nil {
		bad("correct log.brokers", "the log's client: %v", err)
		return
	}
	defer cl.Close()
	found := broker.Check(ctx, cl, broker.TopicsConfig{
		Prefix: c.Log.TopicPrefix, OutboxPartitions: c.OutboxPartitions, Shards: c.Shards, Replication: c.Log.Replication, Retention: c.Log.Retention,
	})
	fatal := 0
	for _, p := range found {
		if p.Warning {
			passed(fmt.Sprintf("note: %s: %s (%s)", p.Subject, p.What, p.Fix))
			continue
		}
		fatal++
		bad(p.Fix, "%s: %s", p.Subject, p.What)
	}
	if fatal == 0 {
		passed(fmt.Sprintf("the log at %v can be used", c.Log.Brokers))
	}
}

func checkTemporal(ctx context.Context, c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	if c.Temporal.Address == "" {
		if c.Temporal.UIPort > 0 {
			if err := freeport.Check(c.Temporal.UIPort); err != nil {
				bad("stop what listens there, or set temporal.ui_port to another port (0: any free one)", "the Temporal Web UI's port: %v", err)
				return
			}
		}
		passed("Temporal is started by `laneway dev`")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cl, err := workers.Dial(ctx, workers.DialOptions{Address: c.Temporal.Address, Namespace: c.Temporal.Namespace})
	switch {
	case errors.Is(err, workers.ErrNamespace):
		bad(fmt.Sprintf("create the namespace %s, or set temporal.namespace", c.Temporal.Namespace), "%v", err)
	case err != nil:
		bad("start Temporal, or correct temporal.address", "%v", err)
	default:
		cl.Close()
		passed("Temporal at " + c.Temporal.Address + " answers")
	}
}
