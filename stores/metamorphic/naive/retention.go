package naive

import (
	"context"
	"maps"

	"github.com/laneway/laneway/mailbox"
)

// RemoveVersions implements mailbox.RetentionStore.
func (s *Store) RemoveVersions(ctx context.Context, versions []mailbox.GroupVersion) error {
	return s.alone(ctx, func() error {
		for _, v := range versions {
			if w, ok := s.versions[v]; ok {
				w.Manifest = nil
				s.versions[v] = w
			}
		}
		return nil
	})
}

// RemoveBitmaps implements mailbox.RetentionStore.
func (s *Store) RemoveBitmaps(ctx context.Context, bitmaps []mailbox.BitmapRef) error {
	return s.alone(ctx, func() error {
		for _, b := range bitmaps {
			if w, ok := s.versions[b.GroupVersion]; ok {
				w.Bitmaps = maps.Clone(w.Bitmaps)
				delete(w.Bitmaps, b.Shard)
				s.versions[b.GroupVersion] = w
			}
		}
		return nil
	})
}

// RemoveDirectory implements mailbox.RetentionStore.
func (s *Store) RemoveDirectory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard) error {
	return s.alone(ctx, func() error {
		for v, w := range s.versions {
			if v.Group == g && v.Generation == generation {
				w.Directory = maps.Clone(w.Directory)
				delete(w.Directory, n)
				s.versions[v] = w
			}
		}
		return g.Check()
	})
}

// RemoveProgress implements mailbox.RetentionStore.
func (s *Store) RemoveProgress(ctx context.Context, own mailbox.Ownership, progress []mailbox.ProgressRemoval) (removed int, err error) {
	err = s.alone(ctx, func() error {
		sh, err := s.owned(own)
		if err != nil {
			return err
		}
		for _, r := range progress {
			if p := sh.dispatches[r.Dispatch]; p != nil && p.Seq == r.Seq && p.LastOffset <= r.LastOffset {
				delete(sh.dispatches, r.Dispatch)
				removed++
			}
		}
		return nil
	})
	return removed, err
}

func (s *Store) alone(ctx context.Context, f func() error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return f()
}
