package config

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/laneway/laneway/blobs"
)

// Blobs says where what is too large for the store is kept.
type Blobs struct {
	// URL is file:///path or s3://bucket; empty for a folder below data_dir. It
	// holds no secret: the credentials of S3 come from the SDK's environment.
	URL string `koanf:"url"`
}

// BlobsURL returns the bucket's URL.
func (c *Config) BlobsURL() (string, error) {
	if c.Blobs.URL != "" {
		return c.Blobs.URL, nil
	}
	return blobs.DirURL(filepath.Join(c.DataDir, "blobs"))
}

// checkBlobs looks at what can be told without the bucket. The texts never quote
// the URL: somebody may have put credentials there.
func (c *Config) checkBlobs(bad func(key, fix, format string, args ...any)) {
	if c.Blobs.URL == "" {
		return
	}
	const fix = "use file:///PATH, or s3://BUCKET?region=REGION, with &endpoint=https://HOST:PORT&use_path_style=true for a server that is not AWS"
	u, err := blobs.CheckURL(c.Blobs.URL)
	switch {
	case err != nil:
		bad("blobs.url", fix, "%v", err)
	case u.Scheme == "mem":
		bad("blobs.url", fix, "a bucket in memory loses what it holds")
	}
}

// maskEmbedded masks the credentials in a URL that is a parameter of another.
func maskEmbedded(value string) string {
	plain, err := url.QueryUnescape(value)
	if err != nil || !strings.Contains(plain, "@") {
		return value
	}
	if _, _, isURL := strings.Cut(plain, "://"); !isURL {
		return value
	}
	return url.QueryEscape(mask(plain))
}
