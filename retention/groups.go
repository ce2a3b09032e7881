package retention

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
)

const (
	// batch is how many rows are removed, or heads noted, at a time.
	batch = 256
	// keepsCached is how many groups' decisions are remembered: listings come in the
	// order of the store.
	keepsCached = 1 << 14
	// maxReferred bounds how many versions progress may refer to beyond what the
	// chain frees: beyond it a run removes none.
	maxReferred = 1 << 20
)

// sweep is one pass over all groups.
type sweep struct {
	*Sweeper
	set    Settings
	window Window
	beat   func(Counts)
	counts Counts
	failed int
	first  error // the first failure of a group

	referred map[mailbox.Group]map[mailbox.GroupVersion]struct{}
	folders  map[string]mailbox.Group // of blobs; no group: not seen yet
	keeps    map[mailbox.Group]*Keep
}

// Groups notes what heads name, and removes the versions that the window frees:
// manifests, bitmaps, blobs, directories, in this order. beat is called now and then.
// A group that cannot be read is passed over; the error says so at the end.
func (s *Sweeper) Groups(ctx context.Context, set Settings, w Window, beat func(Counts)) (Counts, error) {
	if set.Versions <= 0 {
		return Counts{}, nil
	}
	p := &sweep{
		Sweeper: s, set: set, window: w, beat: beat,
		referred: map[mailbox.Group]map[mailbox.GroupVersion]struct{}{}, folders: map[string]mailbox.Group{}, keeps: map[mailbox.Group]*Keep{},
	}
	for _, step := range []func(context.Context) error{p.findReferred, p.findFolders, p.noteHeads, p.versions, p.bitmaps, p.blobs, p.directories} {
		if err := step(ctx); err != nil {
			return p.counts, err
		}
		p.beat(p.counts)
	}
	if p.failed > 0 {
		return p.counts, &PassedError{p.failed, p.first}
	}
	return p.counts, nil
}

// findReferred finds the versions that progress refers to, and records that
// positions leave out. A dispatch that refers to a version that the window frees
// lies below the start of the dispatch log.
func (p *sweep) findReferred(ctx context.Context) error {
	logs, err := p.Log.State(ctx)
	if err != nil {
		return fmt.Errorf("where the logs are: %w", err)
	}
	n := 0
	refer := func(v mailbox.GroupVersion) {
		of := p.referred[v.Group]
		if of == nil {
			of = map[mailbox.GroupVersion]struct{}{}
			p.referred[v.Group] = of
		}
		if _, known := of[v]; !known {
			of[v] = struct{}{}
			n++
		}
	}
	for _, v := range logs.Frozen {
		refer(v)
	}
	if len(logs.DispatchStart) != p.Shards {
		return fmt.Errorf("dispatch log: %w: %d, there are %d shards", ErrPartitions, len(logs.DispatchStart), p.Shards)
	}
	for shard, start := range logs.DispatchStart {
		if err := p.progressOf(ctx, mailbox.Shard(shard), start, refer, &n); err != nil {
			return fmt.Errorf("progress of shard %d: %w", shard, err)
		}
		p.beat(p.counts)
	}
	return nil
}

func (p *sweep) progressOf(ctx context.Context, shard mailbox.Shard, start int64, refer func(mailbox.GroupVersion), n *int) error {
	st, err := p.Store.LoadShard(ctx, shard)
	if err != nil {
		return err
	}
	seen, now := 0, p.Now()
	var bad error
	err = p.Store.ScanProgress(ctx, shard, 0, func(d *mailbox.DispatchProgress) bool {
		if seen++; seen%(16*batch) == 0 {
			p.beat(p.counts)
		}
		switch {
		case d.Seq.Offset() >= start:
			return false
		case !p.set.Apply && MayRemoveProgress(d, &st.Watermarks, now, p.set.ReplayWindow):
			return true // a run that applies has removed it before it comes here
		case *n > maxReferred:
			bad = fmt.Errorf("more than %d versions are referred to", maxReferred)
			return false
		}
		rec, err := records.DecodeDispatch(d.Record, shard, math.MaxInt64/2)
		if err != nil {
			bad = fmt.Errorf("%w: the record of dispatch %s: %w", mailbox.ErrCorrupt, d.Dispatch, err)
			return false
		}
		if rec.Group != nil {
			refer(rec.GroupVersion())
		}
		return true
	})
	return errors.Join(err, bad)
}

// findFolders names the groups' folders that hold blobs: few groups have any.
func (p *sweep) findFolders(ctx context.Context) error {
	return p.Blobs.List(ctx, blobRoot, func(key string, _ int64) bool {
		if folder, _, _, ok := blobOf(key); ok {
			p.folders[folder] = mailbox.Group{}
		}
		return true
	})
}

// noteHeads writes down which versions heads name.
func (p *sweep) noteHeads(ctx context.Context) error {
	var heads []conversation.Current
	flush := func() error {
		defer func() { heads = heads[:0] }()
		p.beat(p.counts)
		// Read after the heads: a run that began meanwhile has its ends from before.
		runs, _, err := p.runs(ctx)
		if err != nil {
			return err
		}
		for i := range heads {
			if err := p.note(ctx, &heads[i], runs.Label()); err != nil {
				if err := p.pass(ctx, heads[i].Group, err); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var failed error
	err := p.Store.Heads(ctx, func(c mailbox.Conversation) bool {
		cur, ok, err := p.head(ctx, mailbox.Group(c))
		if err != nil {
			failed = p.pass(ctx, mailbox.Group(c), err)
			return failed == nil
		}
		if !ok {
			return true
		}
		if folder := blobsOf(cur.Group); len(p.folders) > 0 {
			if _, has := p.folders[folder]; has {
				p.folders[folder] = cur.Group
			}
		}
		// A version may be frozen, by a leave, after the head has named the next; only
		// one without a pending record says that all of it is on the outbox.
		if cur.Pending {
			return true
		}
		if heads = append(heads, cur); len(heads) == batch {
			failed = flush()
		}
		return failed == nil
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("note the heads: %w", err)
	}
	return flush()
}

func (p *sweep) head(ctx context.Context, g mailbox.Group) (conversation.Current, bool, error) {
	data, revision, err := p.Store.Head(ctx, mailbox.Conversation(g))
	if err != nil || revision == 0 {
		return conversation.Current{}, false, err
	}
	return conversation.DecodeCurrent(mailbox.Conversation(g), data)
}

func groupRow(g mailbox.Group) string {
	sum := mailbox.Sum(mailbox.AppendLP(mailbox.AppendLP(nil, g.Tenant), g.ID))
	return fmt.Sprintf("group/%x", sum[:16])
}

func (p *sweep) note(ctx context.Context, c *conversation.Current, label uint64) error {
	for range casAttempts {
		var st GroupState
		revision, err := p.row(ctx, groupRow(c.Group), &st)
		if err != nil {
			return err
		}
		if !st.Note(c.Generation, c.Version, label, p.window.Freed) {
			return nil
		}
		if err := p.put(ctx, groupRow(c.Group), revision, &st); !again(err) {
			return err
		}
	}
	return ErrConflict
}

// pass passes over a group; the error is one that ends the pass.
func (p *sweep) pass(ctx context.Context, g mailbox.Group, err error) error {
	if ctx.Err() != nil || errors.Is(err, mailbox.ErrStoreFailed) || errors.Is(err, mailbox.ErrStoreRestarted) {
		return err
	}
	if p.failed++; p.failed == 1 {
		p.first = fmt.Errorf("group %q/%q: %w", g.Tenant, g.ID, err)
	}
	p.Logger.Warn("retention passes over a group", "tenant", g.Tenant, "group", g.ID, "error", err)
	return nil
}

// keep decides for a group.
func (p *sweep) keep(ctx context.Context, g mailbox.Group) (*Keep, error) {
	if k := p.keeps[g]; k != nil {
		return k, nil
	}
	k, err := p.decide(ctx, g)
	if err != nil {
		if err := p.pass(ctx, g, err); err != nil {
			return nil, err
		}
		k = &Keep{}
	}
	if len(p.keeps) >= keepsCached {
		clear(p.keeps)
	}
	p.keeps[g] = k
	return k, nil
}

func (p *sweep) decide(ctx context.Context, g mailbox.Group) (*Keep, error) {
	var st GroupState
	if _, err := p.row(ctx, groupRow(g), &st); err != nil {
		return nil, err
	}
	bound, ok := st.Bound(p.window.Freed)
	if !ok {
		return &Keep{}, nil
	}
	// A store that was restored from a backup may be behind what was written down.
	cur, ok, err := p.head(ctx, g)
	if err != nil || !ok || cur.Version < bound.Version || cur.Generation < bound.Generation {
		return &Keep{}, err
	}
	first, err := p.rows().Version(ctx, mailbox.GroupVersion{Group: g, Generation: bound.Generation, Version: bound.Version})
	if err != nil {
		return nil, err
	}
	var referred []*membership.Version
	for v := range p.referred[g] {
		if v.Version >= bound.Version {
			continue
		}
		m, err := p.rows().Version(ctx, v)
		if errors.Is(err, mailbox.ErrNotFound) {
			continue // nothing of it is there
		}
		if err != nil {
			return nil, err
		}
		referred = append(referred, m)
	}
	return NewKeep(first, referred), nil
}
