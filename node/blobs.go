package node

import (
	"context"
	"errors"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/config"
)

// openBlobs opens the bucket of what is too large for the store. One on S3 is not
// asked anything: a node starts without it, and serves what needs no blob.
func openBlobs(ctx context.Context, c *config.Config) (*blobs.Bucket, error) {
	bucketURL, err := c.BlobsURL()
	if err != nil {
		return nil, err
	}
	return blobs.Open(ctx, bucketURL)
}

// checkBlobs looks at the bucket that blobs.url names, and writes nothing to it.
// A folder below data_dir is checked with that.
func checkBlobs(ctx context.Context, c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	if c.Blobs.URL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	// As it would be printed by `laneway config`: it can hold no secret.
	err := blobs.CheckAt(ctx, c.Blobs.URL)
	if err != nil {
		bad(blobsFix(err), "the blob bucket %s cannot be used: %v", c.Blobs.URL, err)
		return
	}
	passed("the blob bucket " + c.Blobs.URL + " answers and can be read")
}

func blobsFix(err error) string {
	switch {
	case errors.Is(err, blobs.ErrRefused), errors.Is(err, blobs.ErrNoCredentials):
		return "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE, or the machine's role) to what may list, read and write the bucket"
	case errors.Is(err, blobs.ErrNoBucket):
		return "make the bucket, or correct blobs.url (LANEWAY_BLOBS_URL)"
	}
	return "start the object store, or correct blobs.url (LANEWAY_BLOBS_URL)"
}
