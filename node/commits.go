package node

import (
	"context"
	"errors"
	"time"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/outbox"
	"github.com/laneway/laneway/records"
)

const (
	// sweepEvery is how often pending commits are looked for, beatEvery how often a
	// store that may lose its tail is told how far it agrees with the outbox.
	sweepEvery = 10 * time.Second
	beatEvery  = time.Second
	// lastBeat bounds the heartbeat of a node that stops.
	lastBeat = 3 * time.Second
)

func (n *Node) startCommits(ctx, run context.Context) (err error) {
	if n.bucket, err = openBlobs(ctx, n.cfg); err != nil {
		return err
	}
	n.onStop(func() { _ = n.bucket.Close() })
	n.outboxLog, err = outbox.NewLog(n.clientConfig("outbox-log"), n.store, n.outbox)
	if err != nil {
		return err
	}
	n.onStop(n.outboxLog.Close)
	quotas, err := n.openQuota()
	if err != nil {
		return err
	}
	n.commits, err = conversation.New(conversation.Config{
		Heads: n.store, Members: n.store, Blobs: n.bucket, Publisher: n.publisher, State: n.store, Outbox: n.outboxLog, Quota: quotas, RenumberingDue: n.metrics.RenumberingsDue.Inc,
		ShardCount: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, EarlierPartitions: n.outbox.EarlierPartitions(), Logger: n.log.With("part", "commit"),
	})
	if err != nil {
		return err
	}
	n.ready.waitFor("commits", "pending commits of an earlier run are not finished")
	n.spawn(func() {
		if n.openCommits(run) {
			n.sweepCommits(run)
		}
	})
	n.spawn(func() { n.beatCommits(run) })
	n.onStop(func() {
		last, cancel := context.WithTimeout(context.Background(), lastBeat)
		defer cancel()
		if err := n.commits.Beat(last); err != nil {
			n.log.Warn("the last heartbeat of commits was not written; a recovery reads more of the outbox", "error", err)
		}
	})
	return nil
}

// openCommits lets commits in once the store has all that the outbox has (design
// 8.4), and reports false when that cannot be.
func (n *Node) openCommits(run context.Context) bool {
	wait := 100 * time.Millisecond
	for run.Err() == nil {
		if closed := n.commits.Closed(); closed != nil {
			n.ready.waitFor("commits", closed.Error())
		}
		err := n.commits.Recover(run)
		if err == nil {
			return true
		}
		if run.Err() != nil || n.endsCommits(err) {
			return false
		}
		n.log.Warn("commits stay closed until the store's last writes are made good; trying again", "error", err)
		n.ready.waitFor("commits", "they are closed until the store's last writes are made good: "+err.Error())
		wait = pauseCommits(run, wait, sweepEvery)
	}
	return false
}

// endsCommits ends the node for errors that no further try of it heals.
func (n *Node) endsCommits(err error) bool {
	for _, end := range []error{conversation.ErrTailLost, mailbox.ErrStoreRestarted, records.ErrUnknownVersion} {
		if errors.Is(err, end) {
			n.fail(err)
			return true
		}
	}
	return false
}

func (n *Node) sweepCommits(run context.Context) {
	wait := 100 * time.Millisecond
	for run.Err() == nil {
		err := n.commits.Sweep(run)
		switch {
		case err == nil:
			n.ready.done("commits")
			wait = sweepEvery
		case run.Err() != nil, n.endsCommits(err):
			return
		default:
			n.log.Warn("pending commits are not all finished; trying again", "error", err)
		}
		wait = pauseCommits(run, wait, sweepEvery)
	}
}

// beatCommits writes the heartbeat. One that fails is no harm in itself: a
// recovery reads from the one before. But a store that answers and takes no
// writes, being out of memory or of disk, shows here.
func (n *Node) beatCommits(run context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-run.Done():
			return
		case <-tick.C:
		}
		err := n.commits.Beat(run)
		if err != nil && run.Err() == nil {
			if n.endsCommits(err) {
				return
			}
			if !failed {
				n.log.Warn("the heartbeat of commits was not written; trying again", "error", err)
			}
			n.ready.waitFor("heartbeat", "the store or the log takes no writes; nothing is committed or delivered: "+err.Error())
		}
		if err == nil && failed {
			n.ready.done("heartbeat")
		}
		failed = err != nil
	}
}

// pauseCommits waits and returns the next wait.
func pauseCommits(run context.Context, wait, most time.Duration) time.Duration {
	select {
	case <-run.Done():
	case <-time.After(wait):
	}
	return min(2*wait, most)
}
