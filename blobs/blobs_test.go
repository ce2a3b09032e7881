package blobs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func TestPutGet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder", "blobs")
	for name, open := range map[string]func() (*Bucket, error){
		"file": func() (*Bucket, error) { return OpenDir(t.Context(), dir) },
		"mem":  func() (*Bucket, error) { return Open(t.Context(), "mem://") },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "file" {
				require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
			}
			b, err := open()
			require.NoError(t, err)
			defer b.Close()
			data := bytes.Repeat([]byte("laneway"), 100_000)
			require.NoError(t, b.Put(t.Context(), "membership/ab/1/2/bitmap-7", data))
			require.NoError(t, b.Put(t.Context(), "membership/ab/1/2/bitmap-7", data), "putting again")
			got, err := b.Get(t.Context(), "membership/ab/1/2/bitmap-7", mailbox.Sum(data), int64(len(data)))
			require.NoError(t, err)
			require.Equal(t, data, got)

			_, err = b.Get(t.Context(), "membership/ab/1/2/bitmap-7", mailbox.Sum(data), int64(len(data))-1)
			require.ErrorIs(t, err, mailbox.ErrCorrupt, "over the bound")
			_, err = b.Get(t.Context(), "membership/ab/1/2/bitmap-7", mailbox.Digest{}, 1<<30)
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
			require.ErrorContains(t, err, "membership/ab/1/2/bitmap-7")
			_, err = b.Get(t.Context(), "membership/ab/1/3/bitmap-7", mailbox.Digest{}, 1<<30)
			require.ErrorIs(t, err, mailbox.ErrNotFound)
		})
	}
}

func TestDamagedFileIsCorrupt(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenDir(t.Context(), dir)
	require.NoError(t, err)
	defer b.Close()
	data := []byte("twelve bytes")
	require.NoError(t, b.Put(t.Context(), "x/y", data))
	onDisk, err := os.ReadFile(filepath.Join(dir, "x", "y"))
	require.NoError(t, err)
	require.Equal(t, data, onDisk, "a key is its path: what Put syncs is what it wrote")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x", "y"), []byte("twelve bites"), 0o600))
	_, err = b.Get(t.Context(), "x/y", mailbox.Sum(data), 1<<20)
	require.ErrorIs(t, err, mailbox.ErrCorrupt)
}

func TestKeysThatNeedEscapingAreRefused(t *testing.T) {
	b, err := OpenDir(t.Context(), t.TempDir())
	require.NoError(t, err)
	defer b.Close()
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", "A", "a b", "a\x00"} {
		require.Error(t, b.Put(t.Context(), key, nil), "%q", key)
		_, err := b.Get(t.Context(), key, mailbox.Digest{}, 1)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, "%q", key)
	}
}
