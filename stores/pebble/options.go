package pebble

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laneway/laneway/mailbox"
)

// Options configure a store.
type Options struct {
	// Dir is the data directory; it is made if it does not exist.
	Dir string
	// FS is the file system; nil is the disk.
	FS vfs.FS
	// ShardCount is the deployment's immutable shard_count.
	ShardCount int
	// RetentionDays is the mailbox retention; 0 is the default of 14.
	RetentionDays int
	// Clock tells the time that days and leases end by; nil is time.Now.
	Clock func() time.Time
	// Logger gets Pebble's own messages and failures; nil discards them.
	Logger *slog.Logger
	// OnFatal is called once, on its own goroutine, with the error that ended
	// service (it matches mailbox.ErrStoreFailed). The process should exit with a
	// non-zero code: a restart heals.
	OnFatal func(error)
	// ExpireEvery is how often expired days are dropped; 0 is hourly, negative
	// only when ExpireDays is called.
	ExpireEvery time.Duration
	// MemTableSize and CacheSize are in bytes; 0 is 32 MiB and 256 MiB. Pebble
	// takes the memtables in use out of the cache: a cache no larger than they are
	// keeps nothing, not even the bloom filters that every look-up needs.
	MemTableSize int
	CacheSize    int
}

// DefaultRetentionDays is the mailbox retention when none is set.
const DefaultRetentionDays = 14

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, fmt.Errorf("pebble: no data directory is set")
	}
	if o.ShardCount < 1 {
		return o, fmt.Errorf("pebble: shard count %d: at least 1 is needed", o.ShardCount)
	}
	if o.RetentionDays == 0 {
		o.RetentionDays = DefaultRetentionDays
	}
	if o.RetentionDays < mailbox.MinRetentionDays || o.RetentionDays > mailbox.MaxRetentionDays {
		return o, fmt.Errorf("pebble: retention of %d days: %d to %d are allowed", o.RetentionDays, mailbox.MinRetentionDays, mailbox.MaxRetentionDays)
	}
	if o.FS == nil {
		o.FS = vfs.Default
		// Pebble's lock knows directories by name: one directory, one name.
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return o, fmt.Errorf("pebble: data directory: %w", err)
		}
		o.Dir = dir
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ExpireEvery == 0 {
		o.ExpireEvery = time.Hour
	}
	if o.MemTableSize <= 0 {
		o.MemTableSize = 32 << 20
	}
	if o.CacheSize <= 0 {
		o.CacheSize = 256 << 20
	}
	return o, nil
}

// pebbleOptions are tuned for a stream of small appends in time order and pulls
// of what was just written: large memtables, many allowed files in L0 so that a
// burst is absorbed instead of stalled, bloom filters everywhere because most
// look-ups are for what does not exist, and a bounded cache so that the whole
// process stays below 1 GiB.
func (s *Store) pebbleOptions(fs vfs.FS) *pebble.Options {
	o := &pebble.Options{
		FS:                          fs,
		Comparer:                    comparer,
		Merger:                      merger,
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		MemTableSize:                uint64(s.opts.MemTableSize),
		MemTableStopWritesThreshold: 4,
		CacheSize:                   int64(s.opts.CacheSize),
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               256 << 20,
		MaxOpenFiles:                512,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      pebbleLogger{s},
		EventListener:               s.events(),
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].FilterType = pebble.TableFilter
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	return o
}
