package pebble

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// open opens a store for the suite on a file system in memory that can crash.
func open(t *testing.T, c storetest.Config) *storetest.Subject {
	t.Helper()
	fs := vfs.NewCrashableMem()
	o := Options{Dir: "data", FS: fs, ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now, ExpireEvery: -1, MemTableSize: 1 << 20}
	s, err := Open(o)
	require.NoError(t, err)
	sub := &storetest.Subject{Store: s}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	sub.Reopen = func() mailbox.Store {
		t.Helper()
		require.NoError(t, s.Close())
		s, err = Open(o)
		require.NoError(t, err)
		return s
	}
	sub.Crash = func() mailbox.Store {
		t.Helper()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
		require.NoError(t, s.Close())
		fs, o.FS = crashed, crashed
		s, err = Open(o)
		require.NoError(t, err)
		return s
	}
	sub.Expire = func() error { return s.ExpireDays(t.Context()) }
	return sub
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }
