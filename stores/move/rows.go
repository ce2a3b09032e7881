package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/laneway/laneway/mailbox"
)

// rows compares what conversations, groups and coordinators have.
func (r *run) rows(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.versions, r.committed, r.outboxFences, r.heads} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// heads come after the rows of their messages: a cleared head says that those are
// there. Which heads may have a pending record is the source's to say.
func (r *run) heads(ctx context.Context) error {
	pending := map[mailbox.Conversation]bool{}
	err := r.from.PendingHeads(ctx, func(c mailbox.Conversation) bool {
		pending[c] = true
		return true
	})
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	err = parallel(ctx, r, r.from.Heads, func(ctx context.Context, c mailbox.Conversation) error { return r.head(ctx, c, pending[c]) })
	if err != nil || r.Repair {
		return err
	}
	return parallel(ctx, r, r.to.Heads, func(ctx context.Context, c mailbox.Conversation) error {
		_, revision, err := r.from.Head(ctx, c)
		if err != nil || revision > 0 {
			return err
		}
		return r.head(ctx, c, false)
	})
}

func (r *run) head(ctx context.Context, c mailbox.Conversation, pending bool) error {
	from, revision, err := r.from.Head(ctx, c)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	to, stored, err := r.to.Head(ctx, c)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	r.counters.heads.Add(1)
	if bytes.Equal(from, to) && (revision > 0) == (stored > 0) {
		return nil
	}
	d := Difference{Kind: KindHead, Tenant: c.Tenant, Conversation: c.ID, From: headText(from, revision), To: headText(to, stored)}
	if r.Repair && revision > 0 {
		if err := r.to.CompareAndSetHead(ctx, c, stored, from, pending); err != nil {
			return fmt.Errorf("the target: conversation %q of tenant %q: %w", c.ID, c.Tenant, err)
		}
		d.Repaired = true
	}
	r.report(d)
	return nil
}

func headText(data []byte, revision uint64) string {
	if revision == 0 {
		return ""
	}
	return digest(data)
}

func (r *run) committed(ctx context.Context) error {
	err := parallel(ctx, r, r.from.CommittedRows, func(ctx context.Context, row mailbox.CommittedRow) error {
		r.counters.committed.Add(1)
		to, err := r.to.Committed(ctx, row.Conversation, row.Sender, row.ClientMessageID)
		missing := errors.Is(err, mailbox.ErrNotFound)
		if err != nil && !missing {
			return fmt.Errorf("the target: %w", err)
		}
		if !missing && bytes.Equal(to, row.Data) {
			return nil
		}
		d := committedDifference(&row)
		d.From = digest(row.Data)
		if !missing {
			d.To = digest(to)
		}
		if r.Repair && missing {
			if err := r.to.PutCommitted(ctx, row.Conversation, row.Sender, row.ClientMessageID, row.Data); err != nil {
				return fmt.Errorf("the target: %w", err)
			}
			d.Repaired = true
		}
		r.report(d)
		return nil
	})
	if err != nil || r.Repair {
		return err
	}
	return parallel(ctx, r, r.to.CommittedRows, func(ctx context.Context, row mailbox.CommittedRow) error {
		_, err := r.from.Committed(ctx, row.Conversation, row.Sender, row.ClientMessageID)
		if errors.Is(err, mailbox.ErrNotFound) {
			d := committedDifference(&row)
			d.To = digest(row.Data)
			r.report(d)
			return nil
		}
		return err
	})
}

func committedDifference(row *mailbox.CommittedRow) Difference {
	return Difference{
		Kind: KindCommitted, Tenant: row.Conversation.Tenant, Conversation: row.Conversation.ID,
		Name: fmt.Sprintf("of sender %q, client message %q", row.Sender, row.ClientMessageID),
	}
}

// versions compares directories and bitmaps before the manifests that refer to
// them. All of a version's rows are immutable.
func (r *run) versions(ctx context.Context) error {
	if err := r.directories(ctx); err != nil {
		return err
	}
	type bitmap struct {
		v mailbox.GroupVersion
		n mailbox.Shard
	}
	bitmaps := func(ctx context.Context, f func(bitmap) bool) error {
		return r.from.Bitmaps(ctx, func(v mailbox.GroupVersion, n mailbox.Shard) bool { return f(bitmap{v, n}) })
	}
	err := parallel(ctx, r, bitmaps, func(ctx context.Context, b bitmap) error {
		d := Difference{Kind: KindBitmap, Tenant: b.v.Tenant, Group: b.v.ID, Shard: number(b.n), Name: versionText(b.v)}
		manifest, err := r.from.VersionManifest(ctx, b.v)
		if errors.Is(err, mailbox.ErrNotFound) {
			return nil // the change was not finished; it will write its rows again
		}
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
		return r.versionRow(d, func(s mailbox.Store) ([]byte, error) { return s.VersionBitmap(ctx, b.v, b.n) }, func(data []byte) error {
			return r.to.PutVersion(ctx, mailbox.VersionWrite{GroupVersion: b.v, Manifest: manifest, Bitmaps: map[mailbox.Shard][]byte{b.n: data}})
		})
	})
	if err != nil {
		return err
	}
	err = parallel(ctx, r, r.from.Versions, func(ctx context.Context, v mailbox.GroupVersion) error {
		r.counters.versions.Add(1)
		d := Difference{Kind: KindVersion, Tenant: v.Tenant, Group: v.ID, Name: versionText(v)}
		return r.versionRow(d, func(s mailbox.Store) ([]byte, error) { return s.VersionManifest(ctx, v) }, func(data []byte) error {
			return r.to.PutVersion(ctx, mailbox.VersionWrite{GroupVersion: v, Manifest: data})
		})
	})
	if err != nil || r.Repair {
		return err
	}
	return parallel(ctx, r, r.to.Versions, func(ctx context.Context, v mailbox.GroupVersion) error {
		_, err := r.from.VersionManifest(ctx, v)
		if errors.Is(err, mailbox.ErrNotFound) {
			r.report(Difference{Kind: KindVersion, Tenant: v.Tenant, Group: v.ID, Name: versionText(v), To: "a manifest"})
			return nil
		}
		return err
	})
}

func versionText(v mailbox.GroupVersion) string {
	return fmt.Sprintf("generation %d version %d", v.Generation, v.Version)
}

func (r *run) versionRow(d Difference, read func(mailbox.Store) ([]byte, error), write func([]byte) error) error {
	from, err := read(r.from)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	to, err := read(r.to)
	missing := errors.Is(err, mailbox.ErrNotFound)
	if err != nil && !missing {
		return fmt.Errorf("the target: %w", err)
	}
	if !missing && bytes.Equal(from, to) {
		return nil
	}
	d.From = digest(from)
	if !missing {
		d.To = digest(to)
	}
	if r.Repair && missing {
		if err := write(from); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
		d.Repaired = true
	}
	r.report(d)
	return nil
}

type directory struct {
	group      mailbox.Group
	generation uint64
	shard      mailbox.Shard
}

func (r *run) directories(ctx context.Context) error {
	list := func(ctx context.Context, f func(directory) bool) error {
		return r.from.Directories(ctx, func(g mailbox.Group, generation uint64, n mailbox.Shard) bool { return f(directory{g, generation, n}) })
	}
	// A row is written with a version of its group: the first that the source has.
	first := map[string]mailbox.GroupVersion{}
	err := r.from.Versions(ctx, func(v mailbox.GroupVersion) bool {
		key := fmt.Sprintf("%q %q %d", v.Tenant, v.ID, v.Generation)
		if old, ok := first[key]; !ok || v.Version < old.Version {
			first[key] = v
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	return parallel(ctx, r, list, func(ctx context.Context, d directory) error {
		v, ok := first[fmt.Sprintf("%q %q %d", d.group.Tenant, d.group.ID, d.generation)]
		if !ok {
			return nil // of a version that was never finished
		}
		return r.directory(ctx, d, v)
	})
}

func (r *run) directory(ctx context.Context, d directory, v mailbox.GroupVersion) error {
	read := func(s mailbox.Store) (map[uint32]mailbox.DirectoryRow, error) {
		rows := map[uint32]mailbox.DirectoryRow{}
		err := s.Directory(ctx, d.group, d.generation, d.shard, 0, func(row mailbox.DirectoryRow) bool {
			rows[row.Slot] = row
			return true
		})
		return rows, err
	}
	from, err := read(r.from)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	to, err := read(r.to)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	r.counters.directoryRows.Add(int64(len(from)))
	var lacking []mailbox.DirectoryRow
	var found []Difference
	for slot, row := range from {
		if to[slot] == row {
			continue
		}
		diff := Difference{Kind: KindDirectory, Tenant: d.group.Tenant, Group: d.group.ID, Shard: number(d.shard), Name: fmt.Sprintf("generation %d slot %d", d.generation, slot), From: slotText(row), To: slotText(to[slot])}
		if to[slot] == (mailbox.DirectoryRow{}) {
			lacking, diff.Repaired = append(lacking, row), r.Repair
		}
		found = append(found, diff)
	}
	for slot, row := range to {
		if _, ok := from[slot]; !ok {
			found = append(found, Difference{Kind: KindDirectory, Tenant: d.group.Tenant, Group: d.group.ID, Shard: number(d.shard), Name: fmt.Sprintf("generation %d slot %d", d.generation, slot), To: slotText(row)})
		}
	}
	if r.Repair && len(lacking) > 0 {
		slices.SortFunc(lacking, func(a, b mailbox.DirectoryRow) int { return int(int64(a.Slot) - int64(b.Slot)) })
		manifest, err := r.from.VersionManifest(ctx, v)
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
		w := mailbox.VersionWrite{GroupVersion: v, Manifest: manifest, Directory: map[mailbox.Shard][]mailbox.DirectoryRow{d.shard: lacking}}
		if err := r.to.PutVersion(ctx, w); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
	}
	for _, diff := range found {
		r.report(diff)
	}
	return nil
}

func slotText(row mailbox.DirectoryRow) string {
	if row.User == "" {
		return ""
	}
	return fmt.Sprintf("user %q joined at %d", row.User, row.JoinSeq)
}

// fences compares the shards' fencing memory.
func (r *run) fences(ctx context.Context) error {
	return fenceBatches(func(f func(mailbox.Shard, mailbox.FenceRow) bool) error { return r.from.Fences(ctx, f) }, func(n mailbox.Shard, rows []mailbox.FenceRow) error {
		return r.fenceBatch(rows, Difference{Kind: KindFence, Shard: number(n)}, func(cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
			return r.to.LoadFences(ctx, n, cs)
		}, func(rows []mailbox.FenceRow) error {
			st, err := r.from.LoadShard(ctx, n)
			if err != nil {
				return fmt.Errorf("the source: %w", err)
			}
			own, err := r.own(ctx, n, st.Epoch)
			if err != nil {
				return err
			}
			return r.to.Begin(ctx, own, mailbox.BeginBatch{Fences: rows})
		})
	})
}

// outboxFences compares the coordinators' fencing memory.
func (r *run) outboxFences(ctx context.Context) error {
	return fenceBatches(func(f func(int32, mailbox.FenceRow) bool) error { return r.from.OutboxFences(ctx, f) }, func(partition int32, rows []mailbox.FenceRow) error {
		return r.fenceBatch(rows, Difference{Kind: KindOutboxFence, Name: fmt.Sprintf("of outbox partition %d", partition)}, func(cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
			return r.to.LoadOutboxFences(ctx, partition, cs)
		}, func(rows []mailbox.FenceRow) error {
			return r.to.PutOutboxFences(ctx, partition, rows)
		})
	})
}

// fenceBatches calls look with the rows of a listing, those of one shard or
// partition at a time.
func fenceBatches[K comparable](list func(func(K, mailbox.FenceRow) bool) error, look func(K, []mailbox.FenceRow) error) error {
	batches := map[K][]mailbox.FenceRow{}
	var failed error
	err := list(func(of K, row mailbox.FenceRow) bool {
		if batches[of] = append(batches[of], row); len(batches[of]) == batchRows {
			failed = look(of, batches[of])
			delete(batches, of)
		}
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	for of, rows := range batches {
		if failed == nil {
			failed = look(of, rows)
		}
	}
	return failed
}

func (r *run) fenceBatch(batch []mailbox.FenceRow, d Difference, load func([]mailbox.Conversation) ([]mailbox.FenceRow, error), put func([]mailbox.FenceRow) error) error {
	r.counters.fences.Add(int64(len(batch)))
	cs := make([]mailbox.Conversation, len(batch))
	for i := range batch {
		cs[i] = batch[i].Conversation
	}
	stored := func() (map[mailbox.Conversation]string, error) {
		rows, err := load(cs)
		if err != nil {
			return nil, fmt.Errorf("the target: %w", err)
		}
		out := map[mailbox.Conversation]string{}
		for i := range rows {
			out[rows[i].Conversation] = fenceText(&rows[i])
		}
		return out, nil
	}
	was, err := stored()
	if err != nil {
		return err
	}
	var differ []mailbox.FenceRow
	for i := range batch {
		if was[batch[i].Conversation] != fenceText(&batch[i]) {
			differ = append(differ, batch[i])
		}
	}
	is := was
	if len(differ) > 0 && r.Repair {
		if err := put(differ); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
		if is, err = stored(); err != nil {
			return err
		}
	}
	for i := range differ {
		f := &differ[i]
		d.Tenant, d.Conversation = f.Conversation.Tenant, f.Conversation.ID
		d.From, d.To = fenceText(f), was[f.Conversation]
		d.Repaired = r.Repair && is[f.Conversation] == d.From
		r.report(d)
	}
	return nil
}

func fenceText(f *mailbox.FenceRow) string { return fmt.Sprintf("base %d seen %v", f.Base, f.Seen) }

// commitState compares the row that says how far outbox and store agree. In the
// target it is the target's own: written last, it says that what the source had is
// there, under the target's incarnation.
func (r *run) commitState(ctx context.Context) error {
	from, revision, err := r.from.LoadCommitState(ctx)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	to, stored, err := r.to.LoadCommitState(ctx)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	d := Difference{Kind: KindCommitState, From: commitText(&from, revision), To: commitText(&to, stored)}
	from.Incarnation = r.to.Incarnation()
	if revision == 0 && stored == 0 || d.From == d.To && to.Incarnation == from.Incarnation {
		return nil
	}
	if r.Repair && revision > 0 {
		if err := r.to.CompareAndSetCommitState(ctx, stored, from); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
		d.Repaired = true
	}
	r.report(d)
	return nil
}

// layoutRow is the registry row of the outbox's topics. That of the coordinators'
// claims is no business of another store.
const layoutRow = "outbox_layout"

// layout compares the row that names the outbox's topics.
func (r *run) layout(ctx context.Context) error {
	from, revision, err := r.from.LoadRegistry(ctx, layoutRow)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	to, stored, err := r.to.LoadRegistry(ctx, layoutRow)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	if string(from) == string(to) {
		return nil
	}
	d := Difference{Kind: KindLayout, From: string(from), To: string(to)}
	if r.Repair && revision > 0 {
		if err := r.to.CompareAndSetRegistry(ctx, layoutRow, stored, from); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
		d.Repaired = true
	}
	r.report(d)
	return nil
}

func commitText(st *mailbox.CommitState, revision uint64) string {
	if revision == 0 {
		return ""
	}
	return fmt.Sprintf("epoch %d positions %v markers %v", st.Epoch, st.Positions, st.Markers)
}
