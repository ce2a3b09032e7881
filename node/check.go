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
	// An embedded store below a directory that is no good is one problem, not two.
	if checkDir(c, passed, bad) || c.Store.Kind() != config.Pebble {
		checkStore(ctx, c, passed, bad)
	}
	checkBlobs(ctx, c, passed, bad)
	checkQuota(ctx, c, passed, bad)
	checkLog(ctx, c, passed, bad)
	checkTemporal(ctx, c, passed, bad)
	return problems
}

func checkDir(c *config.Config, passed func(string), bad func(fix, format string, args ...any)) bool {
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
		return false
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err == nil {
		if free := st.Bavail * uint64(st.Bsize); free < minFreeBytes {
			bad("free some space, or set data_dir to another disk", "the data directory %s has %d MiB left, %d MiB are wanted", c.DataDir, free>>20, minFreeBytes>>20)
			return false
		}
	}
	passed("data directory " + c.DataDir + " can be written")
	return true
}

func checkLog(ctx context.Context, c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	if len(c.Log.Brokers) == 0 {
		passed("the log is embedded")
		checkRetention(ctx, c, nil, "", passed, bad)
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
	topic := ""
	if use, err := OutboxUse(ctx, c); err == nil { // else the store's check has said it
		topic = use.Topic
	}
	found := broker.Check(ctx, cl, broker.TopicsConfig{
		Prefix: c.Log.TopicPrefix, OutboxTopic: topic, OutboxPartitions: c.OutboxPartitions, Shards: c.Shards, Replication: c.Log.Replication, Retention: c.Log.Retention,
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
	if c.Presence.Enabled {
		for _, p := range broker.CheckPresenceTopic(ctx, cl, broker.TopicsConfig{Prefix: c.Log.TopicPrefix}, c.Presence.TTL) {
			passed(fmt.Sprintf("note: %s: %s (%s)", p.Subject, p.What, p.Fix))
		}
	}
	if c.Store.Kind() == config.Redis && fatal == 0 {
		topics := broker.TopicsConfig{Prefix: c.Log.TopicPrefix, OutboxTopic: topic}.Topics()
		switch err := broker.CheckRetention(ctx, cl, topics, config.TailRetention); {
		case errors.Is(err, broker.ErrTopicMissing): // a node makes it with log.retention
		case err != nil:
			bad("keep the topics' records longer, or use a store that loses nothing that it acknowledged", "%v", err)
			return
		default:
			passed(fmt.Sprintf("the log keeps records for %s or longer, as a store that may lose its last writes needs it", config.TailRetention))
		}
	}
	if fatal == 0 {
		checkRetention(ctx, c, cl, topic, passed, bad)
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
