package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gocloud.dev/blob"

	"github.com/laneway/laneway/mailbox"
)

// List calls f for the blobs whose key begins with prefix, in the order of their
// keys, until it returns false. f may remove what it is told. What is not one of
// Laneway's is left out.
func (b *Bucket) List(ctx context.Context, prefix string, f func(key string, size int64) bool) error {
	it := b.bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := b.next(ctx, it)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failed("list blobs below "+prefix, "", err)
		}
		if !o.IsDir && keyForm.MatchString(o.Key) && !f(o.Key, o.Size) {
			return nil
		}
	}
}

// next reads on in a listing; a page of a bucket is one operation.
func (b *Bucket) next(ctx context.Context, it *blob.ListIterator) (*blob.ListObject, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return it.Next(ctx)
}

// Delete removes a blob. One that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if !keyForm.MatchString(key) {
		return fmt.Errorf("blob key %q: want lower-case letters, digits, '-' and '/'", key)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := failedDelete(key, b.bucket.Delete(ctx, key)); err != nil && !errors.Is(err, mailbox.ErrNotFound) {
		return err
	}
	return nil
}

func failedDelete(key string, err error) error {
	if err == nil {
		return nil
	}
	return failed("remove", key, err)
}
