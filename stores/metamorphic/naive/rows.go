package naive

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/laneway/laneway/mailbox"
)

type head struct {
	data     []byte
	revision uint64
	pending  bool
}

type committedKey struct {
	c                       mailbox.Conversation
	sender, clientMessageID string
}

// Head implements mailbox.HeadStore.
func (s *Store) Head(ctx context.Context, c mailbox.Conversation) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	h := s.heads[c]
	if h == nil {
		return nil, 0, nil
	}
	return bytes.Clone(h.data), h.revision, nil
}

// CompareAndSetHead implements mailbox.HeadStore.
func (s *Store) CompareAndSetHead(ctx context.Context, c mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := c.Check(); err != nil {
		return err
	}
	stored := uint64(0)
	if h := s.heads[c]; h != nil {
		stored = h.revision
	}
	if stored != revision {
		return fmt.Errorf("%w: it is at revision %d, not %d", mailbox.ErrHeadMoved, stored, revision)
	}
	s.heads[c] = &head{bytes.Clone(data), revision + 1, durable}
	return nil
}

// Committed implements mailbox.HeadStore.
func (s *Store) Committed(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := c.Check(); err != nil {
		return nil, err
	}
	row, ok := s.committed[committedKey{c, sender, clientMessageID}]
	if !ok {
		return nil, fmt.Errorf("committed message: %w", mailbox.ErrNotFound)
	}
	return bytes.Clone(row), nil
}

// PutCommitted implements mailbox.HeadStore. The first row stands.
func (s *Store) PutCommitted(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := c.Check(); err != nil {
		return err
	}
	key := committedKey{c, sender, clientMessageID}
	if _, ok := s.committed[key]; !ok {
		s.committed[key] = bytes.Clone(data)
	}
	return nil
}

// PendingHeads implements mailbox.HeadStore. f may call the store.
func (s *Store) PendingHeads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	var pending []mailbox.Conversation
	for c, h := range s.heads {
		if h.pending {
			pending = append(pending, c)
		}
	}
	s.mu.Unlock()
	for _, c := range pending {
		if !f(c) {
			break
		}
	}
	return nil
}

// PutVersion implements mailbox.MembershipStore.
func (s *Store) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := w.Group.Check(); err != nil {
		return err
	}
	s.versions[w.GroupVersion] = w
	return nil
}

// VersionManifest implements mailbox.MembershipStore.
func (s *Store) VersionManifest(ctx context.Context, v mailbox.GroupVersion) ([]byte, error) {
	return s.version(ctx, v, func(w mailbox.VersionWrite) ([]byte, bool) { return w.Manifest, w.Manifest != nil })
}

// VersionBitmap implements mailbox.MembershipStore.
func (s *Store) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, n mailbox.Shard) ([]byte, error) {
	return s.version(ctx, v, func(w mailbox.VersionWrite) ([]byte, bool) {
		b, ok := w.Bitmaps[n]
		return b, ok
	})
}

func (s *Store) version(ctx context.Context, v mailbox.GroupVersion, part func(mailbox.VersionWrite) ([]byte, bool)) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := v.Group.Check(); err != nil {
		return nil, err
	}
	w, ok := s.versions[v]
	if ok {
		if row, ok := part(w); ok {
			return bytes.Clone(row), nil
		}
	}
	return nil, fmt.Errorf("generation %d version %d: %w", v.Generation, v.Version, mailbox.ErrNotFound)
}

// Directory implements mailbox.MembershipStore. f may call the store.
func (s *Store) Directory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	rows := map[uint32]mailbox.DirectoryRow{}
	for v, w := range s.versions {
		if v.Group == g && v.Generation == generation {
			for _, r := range w.Directory[n] {
				if r.Slot >= from {
					rows[r.Slot] = r
				}
			}
		}
	}
	s.mu.Unlock()
	if err := g.Check(); err != nil {
		return err
	}
	var slots []uint32
	for slot := range rows {
		slots = append(slots, slot)
	}
	slices.Sort(slots)
	for _, slot := range slots {
		if !f(rows[slot]) {
			break
		}
	}
	return nil
}

// LatestSlots implements mailbox.MembershipStore.
func (s *Store) LatestSlots(ctx context.Context, g mailbox.Group, generation uint64, users []string) ([]mailbox.DirectoryRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := g.Check(); err != nil {
		return nil, err
	}
	out := make([]mailbox.DirectoryRow, len(users))
	for v, w := range s.versions {
		if v.Group != g || v.Generation != generation {
			continue
		}
		for _, rows := range w.Directory {
			for _, r := range rows {
				for i, u := range users {
					if r.User == u && r.Slot >= out[i].Slot {
						out[i] = r
					}
				}
			}
		}
	}
	return out, nil
}

// LoadCommitState implements mailbox.CommitStore.
func (s *Store) LoadCommitState(ctx context.Context) (mailbox.CommitState, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.CommitState{}, 0, err
	}
	defer s.mu.Unlock()
	st := s.commits
	st.Positions, st.Markers = slices.Clone(st.Positions), slices.Clone(st.Markers)
	return st, s.revision, nil
}

// CompareAndSetCommitState implements mailbox.CommitStore.
func (s *Store) CompareAndSetCommitState(ctx context.Context, revision uint64, st mailbox.CommitState) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.revision != revision {
		return fmt.Errorf("%w: the commit state is at revision %d, not %d", mailbox.ErrHeadMoved, s.revision, revision)
	}
	st.Positions, st.Markers = slices.Clone(st.Positions), slices.Clone(st.Markers)
	s.commits, s.revision = st, revision+1
	return nil
}
