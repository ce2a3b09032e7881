package redis

import (
	"context"
	"fmt"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

var scriptRemoveProgress = newScript("remove_progress", "shardlib")

const (
	// removePart is how much progress one run of the script removes at most.
	removePart = 64
	// removeKeys is how many keys one command removes.
	removeKeys = 256
	// removeSlots is how many slots of a directory go in one round trip.
	removeSlots = 512
)

// RemoveVersions implements mailbox.RetentionStore.
func (s *Store) RemoveVersions(ctx context.Context, versions []mailbox.GroupVersion) error {
	keys := make([]string, len(versions))
	for i := range versions {
		keys[i] = s.versionKey(versions[i])
	}
	return s.removeKeys(ctx, "remove manifests", keys)
}

// RemoveBitmaps implements mailbox.RetentionStore.
func (s *Store) RemoveBitmaps(ctx context.Context, bitmaps []mailbox.BitmapRef) error {
	keys := make([]string, len(bitmaps))
	for i, b := range bitmaps {
		keys[i] = s.bitmapKey(b.GroupVersion, b.Shard)
	}
	return s.removeKeys(ctx, "remove bitmaps", keys)
}

// removeKeys takes keys away; the server frees their memory beside its work.
func (s *Store) removeKeys(ctx context.Context, op string, keys []string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	for part := range slices.Chunk(keys, removeKeys) {
		if err := s.client().Unlink(ctx, part...).Err(); err != nil {
			return s.serverError(op, err)
		}
	}
	return nil
}

// RemoveDirectory implements mailbox.RetentionStore: a page of slots at a time, the
// rows of who had them last first, so that the directory is there until they are
// gone.
func (s *Store) RemoveDirectory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return err
	}
	key, latest := s.directoryKey(g, generation, n), s.latestKey(g, generation)
	for {
		members, err := s.client().ZRange(ctx, key, 0, removeSlots-1).Result()
		if err != nil {
			return s.serverError("read a directory", err)
		}
		if len(members) == 0 {
			return nil
		}
		users, rows := make([]string, 0, len(members)), make([]any, len(members))
		for i, m := range members {
			rows[i] = m
			if len(m) > slotSize {
				users = append(users, m[slotSize:])
			}
		}
		if _, err := s.client().Pipelined(ctx, func(p goredis.Pipeliner) error {
			if len(users) > 0 {
				p.HDel(ctx, latest, users...)
			}
			p.ZRem(ctx, key, rows...)
			return nil
		}); err != nil {
			return s.serverError("remove a directory", err)
		}
	}
}

// RemoveProgress implements mailbox.RetentionStore. Parts are removed one by one:
// progress and its place in the index go together.
func (s *Store) RemoveProgress(ctx context.Context, own mailbox.Ownership, progress []mailbox.ProgressRemoval) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	if err := s.checkShard(own.Shard); err != nil {
		return 0, err
	}
	removed := 0
	for part := range slices.Chunk(distinct(progress), removePart) {
		keys := append(make([]string, 0, 2+len(part)), s.shardKey(own.Shard), s.progressIndexKey(own.Shard))
		args := ownerArgs(own)
		for _, r := range part {
			keys = append(keys, s.progressKey(own.Shard, r.Dispatch))
			args = append(args, seqText(r.Seq), max(r.LastOffset, 0), seqText(r.Seq)+r.Dispatch.String())
		}
		v, err := s.runOne(ctx, scriptRemoveProgress, keys, args...)
		if err != nil {
			return removed, fmt.Errorf("remove progress of shard %d: %w", own.Shard, err)
		}
		n, _ := v.(int64)
		removed += int(n)
	}
	return removed, nil
}

// distinct leaves out repetitions of a dispatch.
func distinct(progress []mailbox.ProgressRemoval) []mailbox.ProgressRemoval {
	seen := make(map[mailbox.DispatchID]struct{}, len(progress))
	out := make([]mailbox.ProgressRemoval, 0, len(progress))
	for _, r := range progress {
		if _, twice := seen[r.Dispatch]; !twice {
			seen[r.Dispatch] = struct{}{}
			out = append(out, r)
		}
	}
	return out
}
