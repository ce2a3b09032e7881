package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/conversation"
)

func (n *Node) startCommits(ctx, run context.Context) (err error) {
	if n.bucket, err = blobs.OpenDir(ctx, filepath.Join(n.cfg.DataDir, "blobs")); err != nil {
		return err
	}
	n.onStop(func() { _ = n.bucket.Close() })
	n.commits, err = conversation.New(conversation.Config{
		Heads: n.store, Members: n.store, Blobs: n.bucket, Publisher: n.publisher,
		ShardCount: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, Logger: n.log.With("part", "commit"),
	})
	if err != nil {
		return err
	}
	n.ready.waitFor("commits", "pending commits of an earlier run are not finished")
	n.spawn(func() {
		wait := 100 * time.Millisecond
		for run.Err() == nil {
			err := n.commits.Sweep(run)
			if err == nil {
				n.ready.done("commits")
				wait = 10 * time.Second
			} else if run.Err() == nil {
				n.log.Warn("pending commits are not all finished; trying again", "error", err)
				wait = min(2*wait, 10*time.Second)
			}
			select {
			case <-run.Done():
			case <-time.After(wait):
			}
		}
	})
	return nil
}
