package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Blobs keeps what is too large for a store's row. Put returns when the blob is
// on disk; Get verifies the digest and returns mailbox.ErrCorrupt when it
// differs, mailbox.ErrNotFound when there is none.
type Blobs interface {
	Put(ctx context.Context, key string, data []byte) error
	Get(ctx context.Context, key string, digest mailbox.Digest, maxBytes int64) ([]byte, error)
}

// Rows reads and writes versions.
type Rows struct {
	Store mailbox.MembershipStore
	Blobs Blobs
}

const (
	// largeChange is from how many joins on a version takes long to write.
	largeChange = 10_000
	// putBase and putRow bound the writing of a large one: a store on servers takes
	// two or three rows a millisecond when it is busy with other things.
	putBase = 15 * time.Second
	putRow  = time.Millisecond
)

// Put makes a version's rows durable: blobs first, the manifest last. Putting
// the same version again writes the same. A large one has the time that it takes,
// beyond ctx's deadline, and is not written again when it is there: else one that
// takes longer than its caller waits would never be done.
func (r Rows) Put(ctx context.Context, n *Next) error {
	if joins := n.joins(); joins >= largeChange {
		ctx, cancel := withDeadline(ctx, putBase+time.Duration(joins)*putRow)
		defer cancel()
		// The manifest comes last: where it is, the rest is.
		manifest, err := r.Store.VersionManifest(ctx, n.Version.GroupVersion)
		if err == nil && bytes.Equal(manifest, n.Version.Encode()) {
			return nil
		}
		return r.put(ctx, n)
	}
	return r.put(ctx, n)
}

// withDeadline returns a context that ends after d, whatever ctx's own deadline,
// or when ctx is cancelled.
func withDeadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return own, func() { stop(); cancel() }
}

func (r Rows) put(ctx context.Context, n *Next) error {
	for _, b := range n.blobs {
		if err := r.Blobs.Put(ctx, b.key, b.data); err != nil {
			return fmt.Errorf("blob %s: %w", b.key, err)
		}
	}
	err := r.Store.PutVersion(ctx, mailbox.VersionWrite{
		GroupVersion: n.Version.GroupVersion,
		Manifest:     n.Version.Encode(),
		Bitmaps:      n.rows,
		Directory:    n.directory,
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", versionName(n.Version.GroupVersion), err)
	}
	return nil
}

// Version reads a version's manifest, which must be of that version.
func (r Rows) Version(ctx context.Context, id mailbox.GroupVersion) (*Version, error) {
	b, err := r.Store.VersionManifest(ctx, id)
	if err != nil {
		return nil, readError(manifestName(id), err)
	}
	v, err := DecodeVersion(b)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", manifestName(id), err)
	}
	if v.GroupVersion != id {
		return nil, corrupt(manifestName(id), "it describes %s", versionName(v.GroupVersion))
	}
	return v, nil
}

// FrozenVersion reads a version whose manifest a record or a head froze by its
// digest.
func (r Rows) FrozenVersion(ctx context.Context, id mailbox.GroupVersion, digest mailbox.Digest) (*Version, error) {
	v, err := r.Version(ctx, id)
	if err != nil {
		return nil, err
	}
	if v.Digest() != digest {
		return nil, corrupt(manifestName(id), "its digest is %s, frozen was %s", v.Digest(), digest)
	}
	return v, nil
}

// Bitmap reads a shard's bitmap of a version; nil when the shard has no members.
func (r Rows) Bitmap(ctx context.Context, v *Version, shard mailbox.Shard) (*Bitmap, error) {
	part, ok := v.Shard(shard)
	if !ok {
		return nil, nil
	}
	id := v.GroupVersion
	id.Version = part.BitmapVersion
	name := bitmapName{id, shard, part.Blob}
	if part.Blob != "" {
		b, err := r.Blobs.Get(ctx, part.Blob, part.BitmapDigest, int64(part.BitmapBytes))
		if err != nil {
			return nil, readError(name, err)
		}
		return decodePortable(name, b, part, v.SlotHighWater)
	}
	b, err := r.Store.VersionBitmap(ctx, id, shard)
	if err != nil {
		return nil, readError(name, err)
	}
	return decodeRow(name, b, part, v.SlotHighWater)
}

// readError tells what is damaged from what may be there later (a cancelled
// read too: the cause stays matchable).
func readError(name any, err error) error {
	if errors.Is(err, mailbox.ErrCorrupt) {
		return fmt.Errorf("%v: %w", name, err)
	}
	return unavailable(name, err)
}
