package blobs_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/blobs/s3test"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

const (
	bucketName = "laneway"
	key        = "membership/ab/1/2/bitmap-7-00ff"
)

func openS3(t *testing.T, url string) *blobs.Bucket {
	t.Helper()
	b, err := blobs.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func startS3(t *testing.T) *s3test.Server {
	t.Helper()
	s3test.Login(t, s3test.AccessKey, s3test.SecretKey)
	s := s3test.Start(t)
	s.MakeBucket(bucketName)
	return s
}

func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rng.Read(b)
	return b
}

func requirePut(t *testing.T, b *blobs.Bucket, key string, data []byte) {
	t.Helper()
	require.NoError(t, b.Put(t.Context(), key, data))
	got, err := b.Get(t.Context(), key, mailbox.Sum(data), int64(len(data)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// A blob of several parts too: it is a multipart upload.
func TestAnS3BucketKeepsBlobsOverARestartOfItsServer(t *testing.T) {
	s := startS3(t)
	b := openS3(t, s.URL(bucketName))
	require.NoError(t, b.Check(t.Context()))
	large := noise(21 << 20)
	requirePut(t, b, key, noise(300<<10))
	requirePut(t, b, key, noise(300<<10))
	requirePut(t, b, key+"-large", large)
	s.Kill()
	s.Restart()
	for k, data := range map[string][]byte{key: noise(300 << 10), key + "-large": large} {
		got, err := b.Get(t.Context(), k, mailbox.Sum(data), 64<<20)
		require.NoError(t, err, "what was answered as written is there after kill -9")
		require.True(t, bytes.Equal(data, got))
	}
	_, err := b.Get(t.Context(), key+"-none", mailbox.Digest{}, 1<<20)
	require.ErrorIs(t, err, mailbox.ErrNotFound)
	require.ErrorContains(t, err, key+"-none")
}

func TestADamagedObjectIsCorruptByItsName(t *testing.T) {
	s := startS3(t)
	b := openS3(t, s.URL(bucketName))
	data, other := noise(300<<10), noise(300<<10+1)
	requirePut(t, b, key+"-other", other)
	flipped := bytes.Clone(data)
	flipped[len(flipped)/2] ^= 4
	for name, damage := range map[string][]byte{
		"truncated": data[:len(data)-1], "cut to nothing": {}, "flipped": flipped, "longer": append(bytes.Clone(data), 0), "swapped": other,
	} {
		t.Run(name, func(t *testing.T) {
			requirePut(t, b, key, data)
			require.NoError(t, os.WriteFile(s.Object(bucketName, key), damage, 0o600))
			_, err := b.Get(t.Context(), key, mailbox.Sum(data), 64<<20)
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
			require.ErrorContains(t, err, key)
			require.NotErrorIs(t, err, mailbox.ErrStoreUnavailable)
			_, err = b.Get(t.Context(), key, mailbox.Sum(data), int64(len(data))-1)
			require.ErrorIs(t, err, mailbox.ErrCorrupt, "over the bound")
			requirePut(t, b, key, data)
		})
	}
}

func TestAnS3ServerThatIsAwayIsUnavailableUntilItIsBack(t *testing.T) {
	s := startS3(t)
	p := testservers.StartProxy(t, s.Addr)
	b := openS3(t, s3test.URLAt(p.Addr, bucketName))
	data := noise(300 << 10)
	requirePut(t, b, key, data)
	away := func(what string) {
		t.Helper()
		// The caller's bound: the library would try for longer.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Get(ctx, key, mailbox.Sum(data), 1<<20)
		require.ErrorIs(t, err, mailbox.ErrStoreUnavailable, what)
		require.NotErrorIs(t, err, mailbox.ErrNotFound, what)
		require.NotErrorIs(t, err, mailbox.ErrCorrupt, what)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Put(ctx, key, data), mailbox.ErrStoreUnavailable, what)
		require.ErrorIs(t, b.Check(ctx), mailbox.ErrStoreUnavailable, what)
	}
	p.Cut()
	away("cut")
	p.Heal()
	requirePut(t, b, key, data)
	p.DropReplies()
	away("its answers are lost")
	p.Heal()
	requirePut(t, b, key, data)
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGSTOP))
	away("it hangs")
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGCONT))
	requirePut(t, b, key, data)
	s.Kill()
	away("it is down")
	s.Restart()
	requirePut(t, b, key, data)
}

func TestWrongCredentialsAreRefusedAndNeverPrinted(t *testing.T) {
	s := startS3(t)
	requirePut(t, openS3(t, s.URL(bucketName)), key, noise(100))
	for name, c := range map[string]struct {
		access, secret string
		is             error
	}{
		"wrong secret":  {s3test.AccessKey, "hunter2-secret", blobs.ErrRefused},
		"unknown key":   {"hunter2-access", "hunter2-secret", blobs.ErrRefused},
		"no credential": {is: blobs.ErrNoCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			s3test.Login(t, c.access, c.secret)
			b := openS3(t, s.URL(bucketName))
			_, err := b.Get(t.Context(), key, mailbox.Sum(noise(100)), 1<<20)
			for op, err := range map[string]error{"get": err, "put": b.Put(t.Context(), key, noise(100)), "check": b.Check(t.Context())} {
				require.ErrorIs(t, err, c.is, op)
				require.ErrorIs(t, err, mailbox.ErrStoreUnavailable, op)
				require.NotContains(t, err.Error(), "hunter2", op)
			}
		})
	}
}

func TestABucketThatIsNotThereIsNamedAsThat(t *testing.T) {
	s := startS3(t)
	b := openS3(t, s.URL("nobody-made-it"))
	_, err := b.Get(t.Context(), key, mailbox.Digest{}, 1<<20)
	for op, err := range map[string]error{"get": err, "put": b.Put(t.Context(), key, nil), "check": b.Check(t.Context())} {
		require.ErrorIs(t, err, blobs.ErrNoBucket, op)
		require.ErrorIs(t, err, mailbox.ErrStoreUnavailable, op)
		require.NotErrorIs(t, err, mailbox.ErrNotFound, op)
	}
}
