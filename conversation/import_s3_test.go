package conversation

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/blobs/s3test"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

const importUsers = 500

// onS3 is a deployment whose changes of more than a few users go to a bucket.
func onS3(t *testing.T) (*deployment, *s3test.Server, *testservers.Proxy) {
	t.Helper()
	s3test.Login(t, s3test.AccessKey, s3test.SecretKey)
	s := s3test.Start(t)
	s.MakeBucket("laneway")
	p := testservers.StartProxy(t, s.Addr)
	b, err := blobs.Open(t.Context(), s3test.URLAt(p.Addr, "laneway"))
	require.NoError(t, err)
	d := &deployment{store: openStore(t, vfs.NewMem()), blobs: b, outbox: newOutbox(), limits: Limits{InlineChangeBytes: 150}}
	t.Cleanup(func() {
		require.NoError(t, d.store.Close())
		require.NoError(t, b.Close())
	})
	return d, s, p
}

// impatient bounds a call: the library would try for longer.
func impatient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func requireImported(t *testing.T, d *deployment, s *Service) {
	t.Helper()
	r := change("g", "i1", manyUsers(importUsers)...)
	got, err := s.Import(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, uint32(importUsers), got.Changed)
	require.Equal(t, uint64(1), got.Version)
	info, err := s.Group(t.Context(), r.Group)
	require.NoError(t, err)
	require.Len(t, d.members(t, d.cache(), info.GroupVersion, info.ManifestDigest), importUsers)
}

func TestAnImportWhileTheBucketIsAwayAppliesNothing(t *testing.T) {
	d, _, p := onS3(t)
	s := d.service(t)
	r := change("g", "i1", manyUsers(importUsers)...)
	p.Cut()
	_, err := s.Import(impatient(t), r)
	require.ErrorIs(t, err, mailbox.ErrStoreUnavailable)
	_, err = s.Group(t.Context(), r.Group)
	require.ErrorIs(t, err, ErrGroupUnknown)
	ends, err := d.outbox.Ends(t.Context())
	require.NoError(t, err)
	require.Equal(t, make([]int64, testPartitions), ends, "nothing is on the outbox")
	_, err = s.Join(t.Context(), change("other", "j1", "ann"))
	require.NoError(t, err, "what needs no blob goes on")
	p.Heal()
	requireImported(t, d, s)
	requireImported(t, d, s)
}

// The process that decided an import is gone, and the blob that says what it
// changes cannot be read, or is not what was written: nobody makes something else
// of it, and it is finished once the blob is back.
func TestAnImportIsFinishedWhenItsBlobIsBack(t *testing.T) {
	d, srv, p := onS3(t)
	r := change("g", "i1", manyUsers(importUsers)...)
	process := startProcess(t, d, func(_ int, op string) fault {
		if op == "write version" {
			return crashBefore
		}
		return noFault
	})
	_, err := process.serve.Import(t.Context(), r)
	require.ErrorIs(t, err, errCrashed)

	next := d.service(t)
	p.Cut()
	_, err = next.Import(impatient(t), r)
	require.Error(t, err)
	require.NotErrorIs(t, err, mailbox.ErrCorrupt)
	p.Heal()

	found, err := filepath.Glob(srv.Object("laneway", "membership/*/1/1/change-*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	whole, err := os.ReadFile(found[0])
	require.NoError(t, err)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, damage := range map[string][]byte{"truncated": whole[:len(whole)/2], "flipped": flipped} {
		require.NoError(t, os.WriteFile(found[0], damage, 0o600))
		_, err = next.Import(t.Context(), r)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, name)
		require.ErrorContains(t, err, filepath.Base(found[0]), name)
	}
	require.NoError(t, os.WriteFile(found[0], whole, 0o600))
	requireImported(t, d, next)
}
