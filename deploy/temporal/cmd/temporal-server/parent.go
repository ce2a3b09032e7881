package main

import (
	"context"
	"time"
)

// parentInterval is how often the parent is looked for.
const parentInterval = 250 * time.Millisecond

// waitForParent returns when the process's parent is no longer pid, or with
// ctx. A process whose parent dies is given to another at once, on every Unix;
// there is no event for it that works on all of them.
func waitForParent(ctx context.Context, pid int, parent func() int) {
	t := time.NewTicker(parentInterval)
	defer t.Stop()
	for parent() == pid {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
