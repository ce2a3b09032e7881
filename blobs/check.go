package blobs

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// Check reads the beginning of the bucket's list, to see whether the bucket is
// there and answers. It writes nothing. Errors are those of Put and Get.
func (b *Bucket) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	there, err := b.bucket.IsAccessible(ctx)
	if err != nil {
		return failed("list", "", err)
	}
	if !there {
		return failed("list", "", ErrNoBucket)
	}
	return nil
}

// CheckAt checks the bucket at a URL without opening it for use, which would make
// a folder that is missing.
func CheckAt(ctx context.Context, bucketURL string) error {
	u, err := CheckURL(bucketURL)
	if err != nil {
		return err
	}
	if u.Scheme == "file" {
		info, err := os.Stat(fileDir(u))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it is made at the first start
		case err != nil:
			return failed("list", "", err)
		case !info.IsDir():
			return failed("list", "", ErrNoBucket)
		}
	}
	b, err := Open(ctx, bucketURL)
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Check(ctx)
}
