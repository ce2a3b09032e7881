// Package blobs keeps what is too large for a store's row: the bitmaps of very
// large groups and the content of bulk imports (design 4, 2.6).
//
// It wraps a gocloud.dev/blob bucket, a folder or an S3 bucket, and adds what the
// library leaves out:
//
//   - Put returns when the blob is durable, because a pointer to it is published
//     next. A file and its folders are synced to disk. S3 promises it: a PUT or a
//     completed multipart upload is answered when the object is stored redundantly,
//     and every read that begins later sees it. The SDK sends a checksum, which the
//     server compares before it answers.
//   - Get is bounded, and verifies the digest that the pointer carries. Nothing in
//     a bucket is trusted; what differs is mailbox.ErrCorrupt naming the blob.
//   - Every operation ends within a minute, whatever the server does. What may pass
//     is mailbox.ErrStoreUnavailable; what an operator has to set right is
//     [ErrRefused] or [ErrNoBucket] besides.
//
// Names hold the digest of their content, so a blob that is put again, also by
// somebody else and at the same time, is the same blob.
package blobs

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"time"

	"gocloud.dev/blob"

	"github.com/laneway/laneway/mailbox"
)

// MaxBytes is the largest blob that is written or read.
const MaxBytes = 256 << 20

// opTimeout bounds one operation; callers may bound it further.
const opTimeout = time.Minute

// Bucket is a blob bucket. Safe for concurrent use.
type Bucket struct {
	bucket *blob.Bucket
	dir    string // of a file bucket; empty for others
}

// keyForm allows the keys that Laneway makes: they need no escaping anywhere.
var keyForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)*$`)

// Put writes a blob and returns when it is durable. Putting a key again replaces
// it. An error leaves the blob written or not; putting it again is safe.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	if !keyForm.MatchString(key) {
		return fmt.Errorf("blob key %q: want lower-case letters, digits, '-' and '/'", key)
	}
	if len(data) > MaxBytes {
		return fmt.Errorf("blob %s has %d bytes, at most %d are allowed", key, len(data), MaxBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := b.bucket.WriteAll(ctx, key, data, &blob.WriterOptions{ContentType: "application/octet-stream"}); err != nil {
		return failed("write", key, err)
	}
	if b.dir == "" {
		return nil
	}
	// The file first, then every folder up to the bucket's: each may be new.
	for p := filepath.Join(b.dir, filepath.FromSlash(key)); ; p = filepath.Dir(p) {
		if err := syncPath(p); err != nil {
			return failed("sync", key, err)
		}
		if p == b.dir {
			return nil
		}
	}
}

// Get reads a blob of at most maxBytes and verifies its digest. It returns
// mailbox.ErrNotFound, mailbox.ErrCorrupt or mailbox.ErrStoreUnavailable, naming
// the blob.
func (b *Bucket) Get(ctx context.Context, key string, digest mailbox.Digest, maxBytes int64) ([]byte, error) {
	if !keyForm.MatchString(key) {
		return nil, fmt.Errorf("%w: blob key %q", mailbox.ErrCorrupt, key)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	r, err := b.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, failed("read", key, err)
	}
	defer r.Close()
	maxBytes = min(maxBytes, MaxBytes)
	if r.Size() > maxBytes {
		return nil, tooLarge(key, maxBytes)
	}
	data, err := readAll(r, r.Size(), maxBytes)
	if err != nil {
		return nil, failed("read", key, err)
	}
	if int64(len(data)) > maxBytes {
		return nil, tooLarge(key, maxBytes)
	}
	if d := mailbox.Sum(data); d != digest {
		return nil, fmt.Errorf("%w: blob %s has the digest %s, its pointer says %s", mailbox.ErrCorrupt, key, d, digest)
	}
	return data, nil
}

// readAll reads at most one byte more than maxBytes. size is what the bucket says:
// it saves growing, and nothing is trusted to it.
func readAll(r io.Reader, size, maxBytes int64) ([]byte, error) {
	r = io.LimitReader(r, maxBytes+1)
	if size <= 0 {
		return io.ReadAll(r)
	}
	data := make([]byte, size)
	n, err := io.ReadFull(r, data)
	if err != nil {
		return nil, err
	}
	more, err := io.ReadAll(r)
	return append(data[:n], more...), err
}

func tooLarge(key string, maxBytes int64) error {
	return fmt.Errorf("%w: blob %s has more than %d bytes", mailbox.ErrCorrupt, key, maxBytes)
}

// Close ends the use of the bucket.
func (b *Bucket) Close() error { return b.bucket.Close() }
