package api

import (
	"context"
	"log/slog"
	"time"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/notify"
	"github.com/laneway/laneway/presence"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

// Shards is what the handlers ask the node about its shards.
type Shards interface {
	// Watermark returns the durable W of a lane that is served here;
	// *mailbox.MovedError otherwise, ErrLaneRefused or ErrLaneOpening when the
	// lane is closed.
	Watermark(p mailbox.Placement) (mailbox.Seq, error)
	// Watch subscribes to a user's mailbox: a tick after W of its lane passed
	// something that may be the user's, coalesced. What becomes visible after Watch
	// has returned is told. The node closes changed when it stops serving the
	// shard. stop ends the subscription and may be called once changed is closed.
	Watch(u mailbox.User) (changed <-chan struct{}, stop func(), err error)
	// Epoch returns the epoch under which the shard is served here.
	Epoch(shard mailbox.Shard) mailbox.Epoch
	// Status returns every shard of the deployment, with its lanes if asked.
	Status(ctx context.Context, lanes bool) ([]*lanewayv1.ShardStatus, error)
	// Dispatches returns the large dispatches in flight, at most limit.
	Dispatches(ctx context.Context, limit int) ([]*lanewayv1.DispatchStatus, error)
}

// Quarantine is what the handlers ask of the records that could not be processed.
type Quarantine interface {
	// List returns up to limit entries from an offset on, and where to go on; 0:
	// that is all.
	List(ctx context.Context, from int64, limit int) (entries []quarantine.Entry, next int64, err error)
	// Get returns an entry, or quarantine.ErrUnknown.
	Get(ctx context.Context, offset int64) (quarantine.Entry, error)
	// Retryable returns nil when publishing the record again can help, by what this
	// node knows, else quarantine.ErrNotRetryable.
	Retryable(r quarantine.Record) error
	// Retry publishes the record at an offset again and returns it, with its new
	// offset.
	Retry(ctx context.Context, offset int64) (quarantine.Record, int64, error)
}

// Presence is what the handlers ask of who is online, and of gateways' news.
type Presence interface {
	// Report puts events on the presence topic.
	Report(ctx context.Context, events []records.Presence) error
	// Devices returns what is known of a user's devices; complete is false while
	// the topic is still read after the start.
	Devices(u mailbox.User) (devices []presence.DeviceState, complete bool)
	// Feed opens a gateway's feed.
	Feed(tenant string) (*notify.Feed, error)
}

// Renumberings is what the handlers ask of the workflows that renumber groups;
// ErrEngineUnavailable when Temporal cannot be asked.
type Renumberings interface {
	// Start starts a group's renumbering, or returns the one that runs.
	Start(ctx context.Context, g mailbox.Group, force bool) (*lanewayv1.RenumberingStatus, error)
	// Describe returns a run, the last one if none is named.
	Describe(ctx context.Context, g mailbox.Group, run string) (*lanewayv1.RenumberingStatus, error)
	Cancel(ctx context.Context, g mailbox.Group) error
}

// Retention is what the handlers ask of the retention job.
type Retention interface {
	// Show returns the settings and the last run's result.
	Show(ctx context.Context) (*lanewayv1.ShowRetentionResponse, error)
	// Run runs it now and waits; retention.ErrRefused when it cannot.
	Run(ctx context.Context, dry bool) (*lanewayv1.RetentionReport, error)
}

// Mailboxes is the part of mailbox.MailboxStore that reading needs.
type Mailboxes interface {
	RangeScan(ctx context.Context, s mailbox.Scan) (mailbox.Page, error)
	TruncateBefore(ctx context.Context, u mailbox.User, seq mailbox.Seq) error
	UserBounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error)
}

// Observer is told about calls and streams, for metrics. The procedure is one of
// the services' names and the outcome one of the reasons, or "ok".
type Observer interface {
	Request(procedure, outcome string, took time.Duration)
	Pulled(entries int)
	WatchStreams(delta int)
	NotifyStreams(delta int)
}

// Deps is everything a Handler needs. Shards, Mailboxes and ShardCount are
// required; without Conversations the node serves no commits and membership,
// without Quarantine, Presence and Renumberings nothing of them.
type Deps struct {
	ShardCount    int
	Shards        Shards
	Mailboxes     Mailboxes
	Conversations Conversations
	Quarantine    Quarantine
	Presence      Presence
	Renumberings  Renumberings
	Retention     Retention // nil: none is served
	Limits        Limits
	// LoopbackOnly refuses requests whose Host is not a loopback name, so that a
	// web page cannot reach a node without credentials by rebinding its name.
	LoopbackOnly bool
	Observer     Observer     // nil: none
	Log          *slog.Logger // nil: discarded
}

// Limits bound what one caller can ask for. Zero values are replaced by the
// defaults.
type Limits struct {
	MaxMessageBytes int           // of one request message; 1 MiB
	MaxUsersPerCall int           // user ids of one Join or Leave; 5,000
	MaxImportUsers  int           // user ids of one Import stream; 1,000,000
	StreamsPerUser  int           // Watch streams of one user; 16
	Streams         int           // Watch streams of the node; 10,000
	StreamWrite     time.Duration // how long a Watch message may wait for a slow client; 30 s
	DispatchListing int           // most dispatches a listing returns; 1,000
}

// WithDefaults replaces what is not positive by the default.
func (l Limits) WithDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.MaxMessageBytes, 1<<20)
	def(&l.MaxUsersPerCall, 5000)
	def(&l.MaxImportUsers, 1_000_000)
	def(&l.StreamsPerUser, 16)
	def(&l.Streams, 10_000)
	def(&l.DispatchListing, 1000)
	if l.StreamWrite <= 0 {
		l.StreamWrite = 30 * time.Second
	}
	return l
}
