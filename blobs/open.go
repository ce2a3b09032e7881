package blobs

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file:// buckets
	_ "gocloud.dev/blob/memblob"  // mem:// buckets, for tests
	_ "gocloud.dev/blob/s3blob"   // s3:// buckets
)

// Open opens the bucket at a URL: file:///path for a folder, which is made when
// it is missing, or s3://bucket with the parameters of [CheckURL]. An S3 bucket
// is not asked anything yet, see [Bucket.Check].
func Open(ctx context.Context, bucketURL string) (*Bucket, error) {
	u, err := CheckURL(bucketURL)
	if err != nil {
		return nil, fmt.Errorf("open the blob bucket: %w", err)
	}
	b := &Bucket{}
	q := u.Query()
	switch u.Scheme {
	case "file":
		if b.dir, err = filepath.Abs(fileDir(u)); err != nil {
			return nil, fmt.Errorf("blob bucket %q: %w", bucketURL, err)
		}
		// Temporary files next to the final ones, so that a rename never crosses a
		// file system; no sidecar files, nobody reads them.
		q.Set("no_tmp_dir", "true")
		q.Set("create_dir", "true")
		q.Set("metadata", "skip")
	case "s3":
		// The SDK would compare a checksum that the server has kept, and call what
		// differs a failed read. The pointer's digest says more: it is damaged.
		q.Set("response_checksum_validation", "when_required")
	}
	u.RawQuery = q.Encode()
	if b.bucket, err = blob.OpenBucket(ctx, u.String()); err != nil {
		return nil, fmt.Errorf("open the blob bucket %q: %w", bucketURL, err)
	}
	if b.dir != "" {
		if err := syncPath(filepath.Dir(b.dir)); err != nil {
			return nil, fmt.Errorf("open the blob bucket %q: %w", bucketURL, err)
		}
	}
	return b, nil
}

// OpenDir opens a folder of the local file system as a bucket.
func OpenDir(ctx context.Context, dir string) (*Bucket, error) {
	bucketURL, err := DirURL(dir)
	if err != nil {
		return nil, err
	}
	return Open(ctx, bucketURL)
}

// DirURL returns the URL of a folder of the local file system.
func DirURL(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("blob folder %q: %w", dir, err)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), nil
}

func fileDir(u *url.URL) string {
	if u.Host == "." {
		return filepath.FromSlash(strings.TrimPrefix(u.Path, "/"))
	}
	return filepath.FromSlash(u.Path)
}

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
