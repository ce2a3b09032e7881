package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/fanout/claims"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
)

// RunOptions configure a process that runs nodes, one after the other.
type RunOptions struct {
	Options
	// Connect connects a node to Temporal by ConnectTemporal; nil: none is. It runs
	// beside the node, and its context ends when the node is to stop. An error
	// ends Run.
	Connect func(ctx context.Context, n *Node) error
	// Started is called when a node serves; again says that it is not the first.
	Started func(n *Node, again bool)
	// Stopping is called when ctx has ended, before the node is stopped.
	Stopping func()
}

const (
	// firstPause is between two starts of a node, doubled up to lastPause.
	firstPause = 500 * time.Millisecond
	lastPause  = 10 * time.Second
	// steady is after how long a node counts as one that runs.
	steady = time.Minute
)

// Run runs a node until ctx ends, and then returns nil, or until it cannot go on.
//
// A node whose store's server was restarted, or whose lease lapsed while the
// store did not answer, has lost its ownership and nothing else: its parts are
// stopped and started again in this process, on the same address, as often as it
// takes. Every start is a takeover (design 8.4). What another start cannot heal
// (a store that is not safe any more, another owner, a log that lost data) ends
// Run. The first start has to succeed.
func Run(ctx context.Context, o RunOptions) error {
	f, err := newFront(o.Config.Listen)
	if err != nil {
		return err
	}
	defer f.close(o.Config.ShutdownTimeout)
	o.front = f
	log := o.logger()
	pause := time.Duration(0)
	for {
		began := time.Now()
		started, err := o.runOnce(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && !started:
			return ctx.Err()
		case started && !startsOver(err), !started && endsRun(err), !o.again && !startsOver(err):
			return err
		}
		o.again = true
		if started && time.Since(began) > steady {
			pause = 0
		}
		log.Warn("the node starts over", "because", err, "in", pause)
		f.ready.waitFor("node", fmt.Sprintf("starts over: %v", err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(max(2*pause, firstPause), lastPause)
	}
}

// runOnce runs one node. started says that it served; err is nil when ctx ended
// after that.
func (o RunOptions) runOnce(ctx context.Context) (started bool, err error) {
	n, err := Start(ctx, o.Options)
	if err != nil {
		return false, err
	}
	defer n.Stop()
	if o.Started != nil {
		o.Started(n, o.again)
	}
	connected := make(chan error, 1)
	if o.Connect != nil {
		cctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		defer func() {
			cancel()
			<-done // before the node stops: it may be at connecting it
		}()
		go func() {
			defer close(done)
			if err := o.Connect(cctx, n); err != nil && cctx.Err() == nil {
				connected <- err
			}
		}()
	}
	select {
	case <-ctx.Done():
		if o.Stopping != nil {
			o.Stopping()
		}
		return true, nil
	case err := <-n.Fatal():
		return true, err
	case err := <-connected:
		return true, err
	}
}

// startsOver reports whether a node that ended with the error may be started
// again by the same process.
func startsOver(err error) bool {
	if errors.Is(err, mailbox.ErrUnsafeStore) {
		return false
	}
	return errors.Is(err, mailbox.ErrStoreRestarted) || errors.Is(err, ingest.ErrLeaseLapsed) || fanout.ErrClaimsLost(err)
}

// endsRun reports whether a start that failed with the error would fail again,
// whatever the store's server does.
func endsRun(err error) bool {
	if startsOver(err) {
		return false
	}
	for _, final := range []error{
		mailbox.ErrUnsafeStore, mailbox.ErrSchema, mailbox.ErrDeploymentMismatch, mailbox.ErrNotOwner, mailbox.ErrCorrupt, mailbox.ErrStoreLocked,
		ingest.ErrLogTruncated, fs.ErrPermission, claims.ErrOverlap,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}
