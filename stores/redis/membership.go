package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

var scriptPutSlots = newScript("put_slots", "shardlib")

const (
	// slotPart is how many slots one run of the script adds at most.
	slotPart = 128
	// slotRuns is how many runs go in one round trip.
	slotRuns = 32
	// bitmapBytes is about how much of bitmaps goes in one round trip.
	bitmapBytes = 1 << 20
	// directoryPage is how many slots Directory reads at a time.
	directoryPage = 1024
	// latestPart is how many users one command asks for.
	latestPart = 512

	slotSize = 8 + 16 // slot and join seq in hex
)

// PutVersion implements mailbox.MembershipStore: bitmaps and slots in trips of
// bounded size, however many there are, and the manifest when all of them are
// written. What stands of a version that failed in between is written again, the
// same, by the next try.
func (s *Store) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := checkVersion(&w); err != nil {
		return err
	}
	if err := s.putBitmaps(ctx, &w); err != nil {
		return err
	}
	if err := s.putSlots(ctx, &w); err != nil {
		return err
	}
	err := s.client().Set(ctx, s.versionKey(w.GroupVersion), w.Manifest, 0).Err()
	return s.serverError("write a version's manifest", err)
}

func checkVersion(w *mailbox.VersionWrite) error {
	if err := w.Group.Check(); err != nil {
		return err
	}
	for _, list := range w.Directory {
		for i := range list {
			if err := mailbox.CheckID("user_id", list[i].User); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) putBitmaps(ctx context.Context, w *mailbox.VersionWrite) error {
	pipe, size := s.client().Pipeline(), 0
	send := func() error {
		if pipe.Len() == 0 {
			return nil
		}
		_, err := pipe.Exec(ctx)
		pipe, size = s.client().Pipeline(), 0
		return s.serverError("write a version's bitmaps", err)
	}
	for n, bitmap := range w.Bitmaps {
		if size > 0 && size+len(bitmap) > bitmapBytes {
			if err := send(); err != nil {
				return err
			}
		}
		pipe.Set(ctx, s.bitmapKey(w.GroupVersion, n), bitmap, 0)
		size += len(bitmap)
	}
	return send()
}

func (s *Store) putSlots(ctx context.Context, w *mailbox.VersionWrite) error {
	var calls []call
	latest := s.latestKey(w.Group, w.Generation)
	for _, n := range slices.Sorted(maps.Keys(w.Directory)) {
		keys := []string{s.directoryKey(w.Group, w.Generation, n), latest}
		for part := range slices.Chunk(w.Directory[n], slotPart) {
			args := make([]any, 0, 2*len(part))
			for _, r := range part {
				args = append(args, slotText(r.Slot, r.JoinSeq), r.User)
			}
			calls = append(calls, call{script: scriptPutSlots, keys: keys, args: args})
		}
	}
	for trip := range slices.Chunk(calls, slotRuns) {
		for _, r := range s.run(ctx, trip) {
			if r.err != nil {
				return fmt.Errorf("write a version's slots: %w", r.err)
			}
		}
	}
	return nil
}

// slotText is a slot and its join seq; it sorts by slot.
func slotText(slot uint32, joinSeq uint64) string { return fmt.Sprintf("%08x%016x", slot, joinSeq) }

// parseSlot reads what slotText wrote.
func parseSlot(text string) (slot uint32, joinSeq uint64, err error) {
	if len(text) != slotSize {
		return 0, 0, fmt.Errorf("%w: a slot of %d bytes", mailbox.ErrCorrupt, len(text))
	}
	n, slotErr := strconv.ParseUint(text[:8], 16, 32)
	joinSeq, joinErr := strconv.ParseUint(text[8:], 16, 64)
	if slotErr != nil || joinErr != nil {
		return 0, 0, fmt.Errorf("%w: a slot that is no number", mailbox.ErrCorrupt)
	}
	return uint32(n), joinSeq, nil
}

// VersionManifest implements mailbox.MembershipStore.
func (s *Store) VersionManifest(ctx context.Context, v mailbox.GroupVersion) ([]byte, error) {
	return s.versionRow(ctx, v, "manifest", s.versionKey(v))
}

// VersionBitmap implements mailbox.MembershipStore.
func (s *Store) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, n mailbox.Shard) ([]byte, error) {
	return s.versionRow(ctx, v, "bitmap", s.bitmapKey(v, n))
}

func (s *Store) versionRow(ctx context.Context, v mailbox.GroupVersion, what, key string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := v.Group.Check(); err != nil {
		return nil, err
	}
	return s.getRow(ctx, fmt.Sprintf("%s of generation %d version %d", what, v.Generation, v.Version), key)
}

// Directory implements mailbox.MembershipStore. It reads pages; f may call the
// store.
func (s *Store) Directory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return err
	}
	key := s.directoryKey(g, generation, n)
	for {
		members, err := s.client().ZRangeArgs(ctx, goredis.ZRangeArgs{Key: key, Start: decimal(from), Stop: "+inf", ByScore: true, Count: directoryPage}).Result()
		if err != nil {
			return s.serverError("read a directory", err)
		}
		for _, m := range members {
			slot, joinSeq, err := parseSlot(m[:min(len(m), slotSize)])
			if err == nil && slot < from {
				err = fmt.Errorf("%w: slot %d twice, or not in order", mailbox.ErrCorrupt, slot)
			}
			if err != nil {
				return fmt.Errorf("directory of generation %d shard %d: %w", generation, n, err)
			}
			if !f(mailbox.DirectoryRow{Slot: slot, User: m[slotSize:], JoinSeq: joinSeq}) || slot == ^uint32(0) {
				return nil
			}
			from = slot + 1
		}
		if len(members) < directoryPage {
			return nil
		}
	}
}

// LatestSlots implements mailbox.MembershipStore: one pipeline.
func (s *Store) LatestSlots(ctx context.Context, g mailbox.Group, generation uint64, users []string) ([]mailbox.DirectoryRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return nil, err
	}
	out := make([]mailbox.DirectoryRow, 0, len(users))
	if len(users) == 0 {
		return out, nil
	}
	pipe, key := s.client().Pipeline(), s.latestKey(g, generation)
	for part := range slices.Chunk(users, latestPart) {
		pipe.HMGet(ctx, key, part...)
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		return nil, s.serverError("read latest slots", err)
	}
	for _, cmd := range cmds {
		for _, text := range texts(cmd.(*goredis.SliceCmd).Val()) {
			row := mailbox.DirectoryRow{}
			if text != "" {
				if row.Slot, row.JoinSeq, err = parseSlot(text); err != nil {
					return nil, fmt.Errorf("latest slots of generation %d: %w", generation, err)
				}
				row.User = users[len(out)]
			}
			out = append(out, row)
		}
	}
	return out, nil
}
