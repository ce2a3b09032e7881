// Package blobs keeps what is too large for a store's row: the bitmaps of very
// large groups and the content of bulk imports (design 4, 2.6).
//
// It wraps a gocloud.dev/blob bucket and adds what the library leaves out: a
// blob of a file bucket is synced to disk, file and folders, before Put
// returns, because a pointer to it is published next; a read is bounded and
// verified against the digest that the pointer carries. Nothing in a bucket is
// trusted.
package blobs

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file:// buckets
	_ "gocloud.dev/blob/memblob"  // mem:// buckets, for tests
	"gocloud.dev/gcerrors"

	"github.com/laneway/laneway/mailbox"
)

// MaxBytes is the largest blob that is written or read.
const MaxBytes = 256 << 20

// Bucket is a blob bucket. Safe for concurrent use.
type Bucket struct {
	bucket *blob.Bucket
	dir    string // of a file bucket; empty for others
}

// keyForm allows the keys that Laneway makes: they need no escaping anywhere.
var keyForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)*$`)

// Open opens the bucket at a URL: file:///path for a folder, which is made when
// it is missing, or any scheme whose gocloud.dev driver is linked in.
func Open(ctx context.Context, bucketURL string) (*Bucket, error) {
	u, err := url.Parse(bucketURL)
	if err != nil {
		return nil, fmt.Errorf("blob bucket URL %q: %w", bucketURL, err)
	}
	b := &Bucket{}
	if u.Scheme == "file" {
		if b.dir, err = filepath.Abs(fileDir(u)); err != nil {
			return nil, fmt.Errorf("blob bucket %q: %w", bucketURL, err)
		}
		// Temporary files next to the final ones, so that a rename never crosses a
		// file system; no sidecar files, nobody reads them.
		q := u.Query()
		q.Set("no_tmp_dir", "true")
		q.Set("create_dir", "true")
		q.Set("metadata", "skip")
		u.RawQuery = q.Encode()
	}
	if b.bucket, err = blob.OpenBucket(ctx, u.String()); err != nil {
		return nil, fmt.Errorf("open blob bucket %q: %w", bucketURL, err)
	}
	if b.dir != "" {
		if err := syncPath(filepath.Dir(b.dir)); err != nil {
			return nil, fmt.Errorf("open blob bucket %q: %w", bucketURL, err)
		}
	}
	return b, nil
}

// OpenDir opens a folder of the local file system as a bucket.
func OpenDir(ctx context.Context, dir string) (*Bucket, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("blob folder %q: %w", dir, err)
	}
	return Open(ctx, (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String())
}

func fileDir(u *url.URL) string {
	if u.Host == "." {
		return filepath.FromSlash(strings.TrimPrefix(u.Path, "/"))
	}
	return filepath.FromSlash(u.Path)
}

// Put writes a blob and returns when it is on disk. Putting a key again
// replaces it.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	if !keyForm.MatchString(key) {
		return fmt.Errorf("blob key %q: want lower-case letters, digits, '-' and '/'", key)
	}
	if len(data) > MaxBytes {
		return fmt.Errorf("blob %s has %d bytes, at most %d are allowed", key, len(data), MaxBytes)
	}
	if err := b.bucket.WriteAll(ctx, key, data, &blob.WriterOptions{ContentType: "application/octet-stream"}); err != nil {
		return fmt.Errorf("write blob %s: %w", key, err)
	}
	if b.dir == "" {
		return nil
	}
	// The file first, then every folder up to the bucket's: each may be new.
	for p := filepath.Join(b.dir, filepath.FromSlash(key)); ; p = filepath.Dir(p) {
		if err := syncPath(p); err != nil {
			return fmt.Errorf("sync blob %s: %w", key, err)
		}
		if p == b.dir {
			return nil
		}
	}
}

// Get reads a blob of at most maxBytes and verifies its digest. It returns
// mailbox.ErrNotFound or mailbox.ErrCorrupt, naming the blob.
func (b *Bucket) Get(ctx context.Context, key string, digest mailbox.Digest, maxBytes int64) ([]byte, error) {
	if !keyForm.MatchString(key) {
		return nil, fmt.Errorf("%w: blob key %q", mailbox.ErrCorrupt, key)
	}
	r, err := b.bucket.NewReader(ctx, key, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("blob %s: %w", key, mailbox.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", key, err)
	}
	defer r.Close()
	maxBytes = min(maxBytes, MaxBytes)
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", key, err)
	}
	if int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("%w: blob %s has more than %d bytes", mailbox.ErrCorrupt, key, maxBytes)
	}
	if d := mailbox.Sum(data); d != digest {
		return nil, fmt.Errorf("%w: blob %s has the digest %s, its pointer says %s", mailbox.ErrCorrupt, key, d, digest)
	}
	return data, nil
}

// Close ends the use of the bucket.
func (b *Bucket) Close() error { return b.bucket.Close() }

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
