package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/outbox"
	"github.com/laneway/laneway/quarantine"
)

// reachTimeout bounds how long a start waits for the log to answer at all.
const reachTimeout = 15 * time.Second

// withDirFix adds what to do to an error about a directory.
func withDirFix(err error) error {
	if errors.Is(err, mailbox.ErrCorrupt) {
		return fmt.Errorf("%w: nothing was changed: check the disk, and restore the directory from a backup", err)
	}
	var path *fs.PathError
	if !errors.As(err, &path) {
		return err
	}
	return fmt.Errorf("%w: make it a directory that this user can write to, or choose another with data_dir (--data-dir) or store.url", err)
}

func (n *Node) clientConfig(part string) broker.ClientConfig {
	return broker.ClientConfig{Brokers: n.Brokers(), ClientID: "laneway-" + part, Registerer: n.metrics.Registry}
}

// reachLog tells whether the log's brokers answer; an embedded log is not started
// yet, and needs none.
func (n *Node) reachLog(ctx context.Context) error {
	if len(n.cfg.Log.Brokers) == 0 {
		return nil
	}
	c := n.clientConfig("reach")
	c.Registerer = nil
	cl, err := broker.NewClient(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := broker.Ping(ctx, cl); err != nil {
		return fmt.Errorf("%w; start it, or correct log.brokers", err)
	}
	return nil
}

func (n *Node) openLog(ctx context.Context) error {
	if len(n.cfg.Log.Brokers) == 0 {
		e, err := broker.StartEmbedded(ctx, broker.EmbeddedOptions{Dir: filepath.Join(n.cfg.DataDir, "log"), Logger: n.log.With("part", "log"), OnFatal: n.fail})
		if err != nil {
			return withDirFix(err)
		}
		n.embedded = e
		n.onStop(e.Close)
	}
	tc := broker.TopicsConfig{
		Prefix: n.cfg.Log.TopicPrefix, OutboxTopic: n.outbox.Topic, OutboxPartitions: n.outbox.Partitions, Shards: n.cfg.Shards,
		Replication: n.cfg.Log.Replication, Retention: n.cfg.Log.Retention,
	}
	n.topics = tc.Topics()
	adm, err := broker.NewClient(n.clientConfig("setup"))
	if err != nil {
		return err
	}
	defer adm.Close()
	reach, cancelReach := context.WithTimeout(ctx, reachTimeout)
	defer cancelReach()
	if err := broker.Ping(reach, adm); err != nil {
		return fmt.Errorf("%w; start it, or correct log.brokers", err)
	}
	setup, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := broker.EnsureTopics(setup, adm, tc); err != nil {
		return err
	}
	if n.dispatches, err = broker.NewDispatchLog(n.clientConfig("dispatch"), n.topics.Dispatch); err != nil {
		return err
	}
	n.onStop(n.dispatches.Close)
	if err := n.checkTail(ctx); err != nil {
		return err
	}
	if err := n.checkChain(ctx); err != nil {
		return err
	}
	if n.outbox.Switches && !n.opts.CoordinatorOnly {
		if err := outbox.Switch(ctx, n.store); err != nil {
			return err
		}
	}
	if n.publisher, err = broker.NewOutboxPublisher(n.clientConfig("outbox"), n.topics.Outbox, n.cfg.OutboxPartitions); err != nil {
		return err
	}
	n.onStop(n.publisher.Close)
	if n.quarantine, err = quarantine.NewProducer(n.clientConfig("quarantine"), n.topics.Quarantine, nil); err != nil {
		return err
	}
	n.onStop(n.quarantine.Close)
	n.watch("log", "the log does not answer; commits fail and nothing new is delivered", n.publisher.Ping)
	return nil
}
