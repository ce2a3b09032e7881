package sim

import (
	"context"
	"slices"
	"time"

	"github.com/laneway/laneway/mailbox"
)

var _ mailbox.Store = (*conn)(nil)

// conn is the store as one process sees it: a connection to one run of the
// server, over which each call is one of the scheduler's.
type conn struct {
	mailbox.Store // what no part of a process calls
	p             *process
	server        *server
	run           int
}

// send sends a call. unsure is the error of one whose answer is lost.
func (c *conn) send(ctx context.Context, what string, w bool, unsure error, f func(mailbox.Store) error) error {
	var err error
	o, ended := c.p.outcome(ctx, &call{what: what, write: w, do: func() { err = c.server.do(c.run, w, f) }})
	switch {
	case ended != nil:
		return ended
	case o == refused, o == answerLost && err == nil:
		return unsure
	}
	return err
}

func (c *conn) read(ctx context.Context, what string, f func(mailbox.Store) error) error {
	return c.send(ctx, what, false, mailbox.ErrStoreUnavailable, f)
}

// write is a write that is safe to repeat, set one that compares first.
func (c *conn) write(ctx context.Context, what string, f func(context.Context, mailbox.Store) error) error {
	return c.send(ctx, what, true, mailbox.ErrStoreUnavailable, func(s mailbox.Store) error { return f(context.WithoutCancel(ctx), s) })
}

func (c *conn) set(ctx context.Context, what string, f func(context.Context, mailbox.Store) error) error {
	return c.send(ctx, what, true, mailbox.ErrOutcomeUnknown, func(s mailbox.Store) error { return f(context.WithoutCancel(ctx), s) })
}

func (c *conn) Incarnation() string { return c.server.name(c.run) }
func (c *conn) Healthy() error      { return nil }
func (c *conn) Close() error        { return nil }

func (c *conn) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	var out []mailbox.AppendResult
	chunks = slices.Clone(chunks) // a lossy server makes the write again
	for i := range chunks {
		chunks[i].Recipients = slices.Clone(chunks[i].Recipients)
	}
	err := c.write(ctx, "append", func(ctx context.Context, s mailbox.Store) error { out = s.AppendBatch(ctx, chunks); return nil })
	if err != nil {
		out = make([]mailbox.AppendResult, len(chunks))
		for i := range out {
			out[i].Err = err
		}
	}
	return out
}

func (c *conn) RangeScan(ctx context.Context, q mailbox.Scan) (p mailbox.Page, err error) {
	err = c.read(ctx, "scan", func(s mailbox.Store) error { p, err = s.RangeScan(context.WithoutCancel(ctx), q); return err })
	return p, err
}

func (c *conn) LoadShard(ctx context.Context, n mailbox.Shard) (st mailbox.ShardState, err error) {
	err = c.read(ctx, "load shard", func(s mailbox.Store) error { st, err = s.LoadShard(context.WithoutCancel(ctx), n); return err })
	return st, err
}

func (c *conn) Fence(ctx context.Context, r mailbox.FenceRequest) (own mailbox.Ownership, err error) {
	err = c.set(ctx, "fence", func(ctx context.Context, s mailbox.Store) error { own, err = s.Fence(ctx, r); return err })
	return own, err
}

func (c *conn) PutBoundary(ctx context.Context, own mailbox.Ownership, b mailbox.Boundary) error {
	return c.write(ctx, "put boundary", func(ctx context.Context, s mailbox.Store) error { return s.PutBoundary(ctx, own, b) })
}

func (c *conn) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	return c.write(ctx, "renew lease", func(ctx context.Context, s mailbox.Store) error { return s.RenewLease(ctx, own, lease) })
}

func (c *conn) ReleaseLease(ctx context.Context, own mailbox.Ownership) error {
	return c.write(ctx, "release lease", func(ctx context.Context, s mailbox.Store) error { return s.ReleaseLease(ctx, own) })
}

func (c *conn) LoadFences(ctx context.Context, n mailbox.Shard, cs []mailbox.Conversation) (rows []mailbox.FenceRow, err error) {
	err = c.read(ctx, "load fences", func(s mailbox.Store) error { rows, err = s.LoadFences(context.WithoutCancel(ctx), n, cs); return err })
	return rows, err
}

func (c *conn) LookupDispatches(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) (rows []*mailbox.DispatchProgress, err error) {
	err = c.read(ctx, "look up dispatches", func(s mailbox.Store) error {
		rows, err = s.LookupDispatches(context.WithoutCancel(ctx), n, ids)
		return err
	})
	return rows, err
}

func (c *conn) ScanProgress(ctx context.Context, n mailbox.Shard, after mailbox.Seq, f func(*mailbox.DispatchProgress) bool) error {
	var rows []mailbox.DispatchProgress
	err := c.read(ctx, "scan progress", func(s mailbox.Store) error {
		return s.ScanProgress(context.WithoutCancel(ctx), n, after, func(p *mailbox.DispatchProgress) bool { rows = append(rows, *p); return true })
	})
	for i := range rows {
		if err != nil || !f(&rows[i]) {
			break
		}
	}
	return err
}

func (c *conn) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	b.Fences, b.Progress, b.Repeats = slices.Clone(b.Fences), slices.Clone(b.Progress), slices.Clone(b.Repeats)
	return c.write(ctx, "begin", func(ctx context.Context, s mailbox.Store) error {
		err := s.Begin(ctx, own, b)
		for i := range b.Progress {
			c.p.world.note("    %s at %s", b.Progress[i].Dispatch, b.Progress[i].Seq)
		}
		c.p.world.note("    %d repeats, F %s: %v", len(b.Repeats), b.Frontier, err)
		return err
	})
}

func (c *conn) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) (out []mailbox.Marked, err error) {
	chunks = slices.Clone(chunks)
	err = c.write(ctx, "mark", func(ctx context.Context, s mailbox.Store) error {
		out, err = s.MarkChunks(ctx, own, chunks)
		return err
	})
	return out, err
}

func (c *conn) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	was, is := *from, *to
	return c.set(ctx, "commit W", func(ctx context.Context, s mailbox.Store) error {
		err := s.CommitWatermarks(ctx, own, &was, &is)
		c.p.world.note("    W from at least %s to %s, F %s: %v", was.Min(), is.Min(), is.F, err)
		return err
	})
}

func (c *conn) LoadOutboxFences(ctx context.Context, partition int32, cs []mailbox.Conversation) (rows []mailbox.FenceRow, err error) {
	err = c.read(ctx, "load outbox fences", func(s mailbox.Store) error {
		rows, err = s.LoadOutboxFences(context.WithoutCancel(ctx), partition, cs)
		return err
	})
	return rows, err
}

func (c *conn) PutOutboxFences(ctx context.Context, partition int32, rows []mailbox.FenceRow) error {
	rows = slices.Clone(rows)
	return c.write(ctx, "put outbox fences", func(ctx context.Context, s mailbox.Store) error { return s.PutOutboxFences(ctx, partition, rows) })
}

func (c *conn) Head(ctx context.Context, cv mailbox.Conversation) (b []byte, revision uint64, err error) {
	err = c.read(ctx, "read head", func(s mailbox.Store) error { b, revision, err = s.Head(context.WithoutCancel(ctx), cv); return err })
	return b, revision, err
}

func (c *conn) CompareAndSetHead(ctx context.Context, cv mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	data = slices.Clone(data)
	what := "clear head"
	if durable {
		what = "decide head"
	}
	return c.set(ctx, what, func(ctx context.Context, s mailbox.Store) error {
		return s.CompareAndSetHead(ctx, cv, revision, data, durable)
	})
}

func (c *conn) Committed(ctx context.Context, cv mailbox.Conversation, sender, id string) (b []byte, err error) {
	err = c.read(ctx, "look up message", func(s mailbox.Store) error {
		b, err = s.Committed(context.WithoutCancel(ctx), cv, sender, id)
		return err
	})
	return b, err
}

func (c *conn) PutCommitted(ctx context.Context, cv mailbox.Conversation, sender, id string, data []byte) error {
	data = slices.Clone(data)
	return c.write(ctx, "put message row", func(ctx context.Context, s mailbox.Store) error { return s.PutCommitted(ctx, cv, sender, id, data) })
}

func (c *conn) PendingHeads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	var found []mailbox.Conversation
	err := c.read(ctx, "list pending", func(s mailbox.Store) error {
		return s.PendingHeads(context.WithoutCancel(ctx), func(cv mailbox.Conversation) bool { found = append(found, cv); return true })
	})
	for _, cv := range found {
		if err != nil || !f(cv) {
			break
		}
	}
	return err
}

func (c *conn) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	return c.write(ctx, "put version", func(ctx context.Context, s mailbox.Store) error { return s.PutVersion(ctx, w) })
}

func (c *conn) VersionManifest(ctx context.Context, v mailbox.GroupVersion) (b []byte, err error) {
	err = c.read(ctx, "read manifest", func(s mailbox.Store) error { b, err = s.VersionManifest(context.WithoutCancel(ctx), v); return err })
	return b, err
}

func (c *conn) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, n mailbox.Shard) (b []byte, err error) {
	err = c.read(ctx, "read bitmap", func(s mailbox.Store) error { b, err = s.VersionBitmap(context.WithoutCancel(ctx), v, n); return err })
	return b, err
}

func (c *conn) Directory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	var rows []mailbox.DirectoryRow
	err := c.read(ctx, "read directory", func(s mailbox.Store) error {
		return s.Directory(context.WithoutCancel(ctx), g, generation, n, from, func(r mailbox.DirectoryRow) bool { rows = append(rows, r); return true })
	})
	for _, r := range rows {
		if err != nil || !f(r) {
			break
		}
	}
	return err
}

func (c *conn) LatestSlots(ctx context.Context, g mailbox.Group, generation uint64, users []string) (rows []mailbox.DirectoryRow, err error) {
	err = c.read(ctx, "read slots", func(s mailbox.Store) error {
		rows, err = s.LatestSlots(context.WithoutCancel(ctx), g, generation, users)
		return err
	})
	return rows, err
}

func (c *conn) LoadCommitState(ctx context.Context) (st mailbox.CommitState, revision uint64, err error) {
	err = c.read(ctx, "read commit state", func(s mailbox.Store) error {
		st, revision, err = s.LoadCommitState(context.WithoutCancel(ctx))
		return err
	})
	return st, revision, err
}

func (c *conn) CompareAndSetCommitState(ctx context.Context, revision uint64, st mailbox.CommitState) error {
	return c.set(ctx, "write commit state", func(ctx context.Context, s mailbox.Store) error {
		return s.CompareAndSetCommitState(ctx, revision, st)
	})
}

func (c *conn) LoadRegistry(ctx context.Context, name string) (data []byte, revision uint64, err error) {
	err = c.read(ctx, "read registry", func(s mailbox.Store) error {
		data, revision, err = s.LoadRegistry(context.WithoutCancel(ctx), name)
		return err
	})
	return data, revision, err
}

func (c *conn) CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error {
	data = slices.Clone(data)
	return c.set(ctx, "write registry", func(ctx context.Context, s mailbox.Store) error {
		return s.CompareAndSetRegistry(ctx, name, revision, data)
	})
}
