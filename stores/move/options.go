package move

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Options say what is compared and what becomes of differences.
type Options struct {
	// Deployment is what both stores were made for.
	Deployment mailbox.Deployment
	// RetentionDays is the mailbox retention of both.
	RetentionDays int
	// Users, if there are any, are the only ones whose mailboxes are compared; Sample,
	// if not 0, is how many others are picked at random. With either, nothing but
	// mailboxes is looked at.
	Users  []mailbox.User
	Sample int
	// Only limits what is looked at; empty is everything.
	Only Scope
	// Repair copies to the target what it lacks.
	Repair bool
	// Online lets nodes serve the source meanwhile.
	Online bool
	// Settle is for how long, while Online, mailboxes that differ are looked at again
	// at the end before that counts: writes to the target may be on their way. 0 is
	// 30 s.
	Settle time.Duration
	// Parallel is how many mailboxes and rows are compared at once; 0 is 16.
	Parallel int
	// Report is called for every difference, one call at a time.
	Report func(Difference)
	// Logger is told how far the work is; nil discards it.
	Logger *slog.Logger
	// Clock tells the time; nil is time.Now.
	Clock func() time.Time
}

// Scope is a part of what a store holds.
type Scope string

// The scopes.
const (
	// OnlyMailboxes are entries and boundaries.
	OnlyMailboxes Scope = "mailboxes"
	// OnlyRest is all but the mailboxes.
	OnlyRest Scope = "rest"
)

func (o Options) withDefaults() Options {
	if o.Settle <= 0 {
		o.Settle = 30 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	if o.Report == nil {
		o.Report = func(Difference) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if len(o.Users) > 0 || o.Sample > 0 {
		o.Only = OnlyMailboxes
	}
	return o
}

// Kinds of what a difference is in.
const (
	KindDeployment  = "deployment"
	KindEntry       = "entry"
	KindPage        = "page"
	KindBounds      = "bounds"
	KindShard       = "shard"
	KindWatermark   = "watermark"
	KindDispatch    = "dispatch"
	KindFence       = "fence"
	KindOutboxFence = "outbox_fence"
	KindHead        = "head"
	KindCommitted   = "committed_message"
	KindVersion     = "membership_version"
	KindBitmap      = "membership_bitmap"
	KindDirectory   = "membership_directory"
	KindCommitState = "commit_state"
	KindLayout      = "outbox_layout"
)

// Difference is one thing that the stores do not agree on. It names ids and
// digests, and holds no content.
type Difference struct {
	Kind string `json:"kind"`
	// Where: what of these applies.
	Tenant       string `json:"tenant,omitempty"`
	User         string `json:"user,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Group        string `json:"group,omitempty"`
	Shard        *int   `json:"shard,omitempty"`
	Lane         *int   `json:"lane,omitempty"`
	Name         string `json:"name,omitempty"` // of the row within that
	Seq          string `json:"seq,omitempty"`
	// From and To say what each store has; empty is nothing.
	From string `json:"from"`
	To   string `json:"to"`
	// Repaired: the target now has what the source has.
	Repaired bool `json:"repaired,omitempty"`
}

// String says it in one line.
func (d Difference) String() string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(d.Kind, "_", " "))
	for _, p := range []struct{ what, id string }{{"of user", d.User}, {"of conversation", d.Conversation}, {"of group", d.Group}} {
		if p.id != "" {
			fmt.Fprintf(&b, " %s %q of tenant %q", p.what, p.id, d.Tenant)
		}
	}
	if d.Shard != nil {
		fmt.Fprintf(&b, " of shard %d", *d.Shard)
	}
	if d.Lane != nil {
		fmt.Fprintf(&b, " lane %d", *d.Lane)
	}
	if d.Name != "" {
		fmt.Fprintf(&b, " %s", d.Name)
	}
	if d.Seq != "" {
		fmt.Fprintf(&b, " at %s", d.Seq)
	}
	fmt.Fprintf(&b, ": %s in the source, %s in the target", orNothing(d.From), orNothing(d.To))
	if d.Repaired {
		b.WriteString(" (repaired)")
	}
	return b.String()
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func number[T ~uint32 | ~uint8 | ~int32](n T) *int {
	i := int(n)
	return &i
}

// digest names content without showing it.
func digest(b []byte) string {
	sum := mailbox.Sum(b)
	return fmt.Sprintf("%d bytes %x", len(b), sum[:8])
}

// Summary says what was looked at.
type Summary struct {
	Users         int64 `json:"users"`
	Entries       int64 `json:"entries"`
	Shards        int64 `json:"shards"`
	Dispatches    int64 `json:"dispatches"`
	Fences        int64 `json:"fences"`
	Heads         int64 `json:"heads"`
	Committed     int64 `json:"committed_messages"`
	Versions      int64 `json:"membership_versions"`
	DirectoryRows int64 `json:"membership_directory_rows"`
	Differences   int64 `json:"differences"`
	Repaired      int64 `json:"repaired"`
}

// Same reports whether the target has what the source has.
func (s *Summary) Same() bool { return s.Differences == s.Repaired }

// Reasons not to begin. They are wrapped with what to do.
var (
	// ErrServed: a node owns shards of one of the stores.
	ErrServed = errors.New("a node serves the store")
	// ErrEmpty: nothing has ever used the source.
	ErrEmpty = errors.New("the store is empty")
	// ErrTailLost: the source may have lost its last writes, and no node has made
	// them good yet (design 8.4).
	ErrTailLost = errors.New("the source's server was restarted, and no node has served it since")
)

// counters are a Summary that many goroutines add to.
type counters struct {
	users, entries, shards, dispatches, fences, heads, committed, versions, directoryRows, differences, repaired atomic.Int64
}

func (c *counters) summary() Summary {
	return Summary{
		Users: c.users.Load(), Entries: c.entries.Load(), Shards: c.shards.Load(), Dispatches: c.dispatches.Load(), Fences: c.fences.Load(),
		Heads: c.heads.Load(), Committed: c.committed.Load(), Versions: c.versions.Load(), DirectoryRows: c.directoryRows.Load(),
		Differences: c.differences.Load(), Repaired: c.repaired.Load(),
	}
}

// run is one comparison.
type run struct {
	Options

	from, to mailbox.Store
	counters counters

	reports  sync.Mutex
	doubtful []mailbox.User // mailboxes to be looked at again
	settled  bool           // there is no further look
	owners   sync.Mutex
	owned    map[mailbox.Shard]mailbox.Ownership // of the target's shards, made to repair them
}

func (r *run) report(d Difference) {
	r.counters.differences.Add(1)
	if d.Repaired {
		r.counters.repaired.Add(1)
	}
	r.reports.Lock()
	defer r.reports.Unlock()
	r.Report(d)
}
