package ingest

import (
	"context"
	"log/slog"
	"time"

	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/records"
)

// Options are the settings of a shard. The zero value of a field means its
// default.
type Options struct {
	// WorkflowMinEntries is the number of entries in this shard from which a
	// dispatch becomes a DispatchWorkflow (default 1,000).
	WorkflowMinEntries int
	// LaneChildMinEntries is the number of entries from which a lane of such a
	// dispatch gets a LaneWorkflow of its own from the start (default 256).
	LaneChildMinEntries int
	// ClaimTimeout is how long a lane waits for an activity (default 5 s).
	ClaimTimeout time.Duration
	// Turn is how long a chunk may hold its lane (default 30 s).
	Turn time.Duration
	// BatchTimeout is how long a hot-path batch may take before its lanes are
	// tried one by one (default 2 s).
	BatchTimeout time.Duration
	// BatchEntries is about how many entries a hot-path batch holds (default
	// 8,000).
	BatchEntries int
	// Workers is how many hot-path batches may be under way at once (default 2).
	Workers int
	// MaxUnfinishedDispatches bounds the large dispatches that are unfinished and
	// not degraded (default 32); MaxPendingEntries bounds the entries in the
	// lanes (default 400,000, at about 24 bytes each, or one dispatch if that is
	// larger) and MaxPendingTasks the dispatches in lanes, each counted once a
	// lane (default 16,384, at about 1 KiB each). At any bound the log is not read
	// on; a batch that was read before goes in whole.
	MaxUnfinishedDispatches int
	MaxPendingEntries       int
	MaxPendingTasks         int
	// MaxUnexpanded bounds the dispatches whose audience cannot be read yet
	// (default 256, each with its record of up to 512 KiB).
	MaxUnexpanded int
	// Lease is the term of the shard's lease (default 10 s).
	Lease time.Duration
	// StallAlert is how long the lowest obligation of a lane may stay unfinished
	// before an alert (default 30 s).
	StallAlert time.Duration
	// SlowAttach is how often an unfinished degraded chunk is handed to the
	// engine again, in case its workflow is gone, and tried by the shard itself
	// (default 60 s).
	SlowAttach time.Duration
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	num(&o.WorkflowMinEntries, 1000)
	num(&o.LaneChildMinEntries, 256)
	def(&o.ClaimTimeout, 5*time.Second)
	def(&o.Turn, 30*time.Second)
	def(&o.BatchTimeout, 2*time.Second)
	num(&o.BatchEntries, 8000)
	num(&o.Workers, 2)
	num(&o.MaxUnfinishedDispatches, 32)
	num(&o.MaxPendingEntries, 400_000)
	num(&o.MaxPendingTasks, 1<<14)
	num(&o.MaxUnexpanded, 256)
	def(&o.Lease, 10*time.Second)
	def(&o.StallAlert, 30*time.Second)
	def(&o.SlowAttach, time.Minute)
	return o
}

// Store is what a shard needs of a store.
type Store interface {
	mailbox.MailboxStore
	mailbox.ShardStore
	// RemoveProgress is that of mailbox.RetentionStore.
	RemoveProgress(ctx context.Context, own mailbox.Ownership, progress []mailbox.ProgressRemoval) (int, error)
	// Incarnation is that of mailbox.Store.
	Incarnation() string
}

// Log is the shard's partition of the dispatch topic.
type Log interface {
	// Bounds returns the log's first offset and the one after its last.
	Bounds(ctx context.Context) (start, end int64, err error)
	// Epochs returns the epoch markers at or after an offset, in order.
	Epochs(ctx context.Context, from int64) ([]EpochMark, error)
	// AppendEpoch produces an EpochRecord (acks=all) and returns its offset.
	AppendEpoch(ctx context.Context, e records.Epoch) (int64, error)
	// Open reads from an offset on. An offset outside the log is an error, never
	// a reset.
	Open(ctx context.Context, from int64) (Reader, error)
	// CommitLag tells lag dashboards how far the shard has read. It is never read
	// back.
	CommitLag(ctx context.Context, next int64) error
}

// EpochMark is an EpochRecord in the log.
type EpochMark struct {
	records.Epoch
	Offset int64
}

// Reader hands out the partition's records in order.
type Reader interface {
	// Poll waits for records and returns the next of them. Lost or truncated data
	// is an error.
	Poll(ctx context.Context) ([]admission.Record, error)
	Close()
}

// Audiences expands a frozen membership version; membership.NodeCache is one.
type Audiences interface {
	Audience(ctx context.Context, v mailbox.GroupVersion, manifest mailbox.Digest, shard mailbox.Shard) (*membership.Audience, error)
}

// Quarantine takes records that cannot be processed. It returns when they are
// durable on the quarantine topic.
type Quarantine interface {
	Put(ctx context.Context, reason records.Reason, detail string, offset int64, value []byte) error
}

// News is told of what became visible, for those who wait for it. It must not
// keep its caller waiting.
type News interface {
	// Wanted reports whether anybody would be told of the shard's news now.
	Wanted(shard mailbox.Shard) bool
	// Visible is called after W of a lane moved to w, with the dispatches that it
	// passed; all says that there may be others, for anybody in the lane.
	Visible(shard mailbox.Shard, lane mailbox.Lane, w mailbox.Seq, passed []news.Item, all bool)
	// Ended is called when the shard does not work here any more.
	Ended(shard mailbox.Shard)
}

// Config is what a shard is made of.
type Config struct {
	Shard      mailbox.Shard
	Shards     int // shard_count
	Store      Store
	Log        Log
	Audiences  Audiences
	Quarantine Quarantine
	Engine     Engine
	News       News   // nil: nobody is told
	Node       string // this node's name and API address, for the lease
	Address    string
	Options    Options
	Metrics    *metrics.Metrics // nil: counted nowhere
	Logger     *slog.Logger
	Now        func() time.Time
}
