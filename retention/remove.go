package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// collect lists what does not stay, and removes it a batch at a time. list calls its
// function with what it finds; a store may be changed while it is listed. count says
// how much was removed.
func collect[T any](ctx context.Context, p *sweep, what string, list func(func(T) bool) error, stays func(T) (bool, error), remove func(context.Context, []T) error, count func(int)) error {
	var some []T
	var failed error
	looked := 0
	flush := func() {
		if p.set.Apply && len(some) > 0 {
			failed = remove(ctx, some)
		}
		if failed == nil {
			count(len(some))
		}
		some = some[:0]
		p.beat(p.counts)
	}
	err := list(func(x T) bool {
		if looked++; looked%(16*batch) == 0 {
			p.beat(p.counts)
		}
		kept, err := stays(x)
		if err != nil {
			failed = err
			return false
		}
		if !kept {
			if some = append(some, x); len(some) == batch {
				flush()
			}
		}
		return failed == nil
	})
	if err == nil && failed == nil {
		flush()
	}
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (p *sweep) versions(ctx context.Context) error {
	return collect(ctx, p, "remove versions",
		func(f func(mailbox.GroupVersion) bool) error { return p.Store.Versions(ctx, f) },
		func(v mailbox.GroupVersion) (bool, error) {
			k, err := p.keep(ctx, v.Group)
			return err != nil || k.Version(v), err
		},
		p.Store.RemoveVersions,
		func(n int) { p.counts.Versions += int64(n) })
}

func (p *sweep) bitmaps(ctx context.Context) error {
	return collect(ctx, p, "remove bitmaps",
		func(f func(mailbox.BitmapRef) bool) error {
			return p.Store.Bitmaps(ctx, func(v mailbox.GroupVersion, n mailbox.Shard) bool {
				return f(mailbox.BitmapRef{GroupVersion: v, Shard: n})
			})
		},
		func(b mailbox.BitmapRef) (bool, error) {
			k, err := p.keep(ctx, b.Group)
			return err != nil || k.Bitmap(b), err
		},
		p.Store.RemoveBitmaps,
		func(n int) { p.counts.Bitmaps += int64(n) })
}

// blob is one in the bucket.
type blob struct {
	key  string
	size int64
}

func (p *sweep) blobs(ctx context.Context) error {
	for folder, g := range p.folders {
		if g == (mailbox.Group{}) {
			continue // of a group that has no head yet
		}
		k, err := p.keep(ctx, g)
		if err != nil {
			return err
		}
		var size int64
		err = collect(ctx, p, "remove blobs",
			func(f func(blob) bool) error {
				return p.Blobs.List(ctx, folder, func(key string, size int64) bool { return f(blob{key, size}) })
			},
			func(b blob) (bool, error) {
				stays := k.Blob(b.key)
				if !stays {
					size += b.size
				}
				return stays, nil
			},
			func(ctx context.Context, some []blob) error {
				for _, b := range some {
					if err := p.Blobs.Delete(ctx, b.key); err != nil {
						return err
					}
				}
				return nil
			},
			func(n int) { p.counts.Blobs += int64(n) })
		if err != nil {
			return err
		}
		p.counts.BlobBytes += size
	}
	return nil
}

// directory is a shard's slots of a generation.
type directory struct {
	mailbox.Group
	generation uint64
	shard      mailbox.Shard
}

func (p *sweep) directories(ctx context.Context) error {
	return collect(ctx, p, "remove directories",
		func(f func(directory) bool) error {
			return p.Store.Directories(ctx, func(g mailbox.Group, generation uint64, n mailbox.Shard) bool {
				return f(directory{g, generation, n})
			})
		},
		func(d directory) (bool, error) {
			k, err := p.keep(ctx, d.Group)
			return err != nil || k.Directory(d.generation), err
		},
		func(ctx context.Context, some []directory) error {
			for _, d := range some {
				p.beat(p.counts)
				if err := p.Store.RemoveDirectory(ctx, d.Group, d.generation, d.shard); err != nil {
					return err
				}
			}
			return nil
		},
		func(n int) { p.counts.Directories += int64(n) })
}
