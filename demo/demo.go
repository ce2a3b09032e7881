package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/bench/bare"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/mailbox"
)

// Options of a demonstration.
type Options struct {
	Config     *config.Config
	Trace      string // file; empty: no replay
	LargeGroup int    // members; 0: none
	Tenant     string
	Before     time.Duration // how long single chats flow alone, to compare with
	Out        io.Writer     // progress
	Terminal   bool          // Out is a terminal: bars instead of lines
	Logger     *slog.Logger
	// HistoryDir keeps the local Temporal server's data; empty: below data_dir.
	HistoryDir string
}

// Result is what the demonstration found. The first fields are the oracle's.
type Result struct {
	EventsDispatched int            `json:"events_dispatched"`
	Users            int            `json:"users"`
	PeakMembers      int            `json:"peak_members"`
	Entries          int            `json:"entries"`
	ByType           map[string]int `json:"entries_by_type"`
	SHA256           string         `json:"sha256"`

	ResumedAt       int     `json:"resumed_at_event"`
	CommitSeconds   float64 `json:"commit_seconds"`
	CommitsPerSec   float64 `json:"commits_per_second"`
	EntriesPerSec   float64 `json:"entries_per_second"`
	VerifySeconds   float64 `json:"verify_seconds"`
	Store           string  `json:"store"` // pebble, redis or scylla
	Large           *Large  `json:"large,omitempty"`
	TemporalAddress string  `json:"temporal_address,omitempty"`
	TemporalUI      string  `json:"temporal_ui,omitempty"`
	Seconds         float64 `json:"seconds"`
}

// InputError is a trace or an option that cannot be used. Nothing was started.
type InputError struct{ error }

type demo struct {
	o        Options
	out      *output
	temporal *localtemporal.Server
}

func (d *demo) uiURL() string {
	if d.temporal == nil {
		return ""
	}
	return strings.TrimRight(d.temporal.UIURL, "/")
}

// Run does the whole job and leaves nothing running.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	began := time.Now()
	if o.LargeGroup < 0 || o.LargeGroup > 1_000_000 {
		return nil, InputError{fmt.Errorf("a large group of %d members: use 0 (none) to 1,000,000", o.LargeGroup)}
	}
	var trace *Trace
	if o.Trace != "" {
		if trace, err = LoadTrace(o.Trace); err != nil {
			return nil, InputError{err}
		}
	}
	if o.Tenant == "" {
		o.Tenant = "demo"
	}
	if o.Before <= 0 {
		o.Before = 5 * time.Second
	}
	d := &demo{o: o, out: &output{w: o.Out, terminal: o.Terminal}}
	defer d.out.clear()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r = &Result{Store: o.Config.Store.Kind()}
	defer func() { r.Seconds = time.Since(began).Seconds() }()

	temporal := &lateTemporal{done: make(chan *localtemporal.Server, 1), ready: make(chan struct{})}
	ns, err := d.startNodes(ctx, temporal, cancel)
	if err != nil {
		return r, err
	}
	d.startTemporal(ctx, temporal)
	defer func() {
		cancel(nil)
		<-ns.done // workers first
		if s := <-temporal.done; s != nil {
			if stopErr := s.Stop(); stopErr != nil && err == nil {
				err = fmt.Errorf("stop the local Temporal server: %w", stopErr)
			}
		}
	}()
	cl, err := ns.dial()
	if err != nil {
		return r, err
	}
	defer cl.Close()
	if trace != nil {
		if err := d.room(ctx, cl, trace, r); err != nil {
			return r, d.cause(ctx, ns, err)
		}
	}
	if o.LargeGroup > 0 {
		if err := d.awaitTemporal(ctx, ns, r); err != nil {
			return r, d.cause(ctx, ns, err)
		}
		if r.Large, err = d.large(ctx, ns, cl); err != nil {
			return r, d.cause(ctx, ns, err)
		}
	}
	return r, nil
}

// NodeError is what became of the demonstration's node. Its log has more.
type NodeError struct{ error }

// Unwrap lets the cause be found.
func (e NodeError) Unwrap() error { return e.error }

// cause is why a step failed. A node that ends for good first refuses what is
// asked, and a caller hears of that before the end: the end is what is told.
func (d *demo) cause(ctx context.Context, ns *nodes, err error) error {
	away := false
	switch client.ReasonOf(err) {
	case reason.ShuttingDown, client.Unreachable:
		away = true
		select {
		case <-ctx.Done():
		case <-ns.done:
		case <-time.After(d.o.Config.ShutdownTimeout + endsWithin):
		}
	}
	switch c := context.Cause(ctx); {
	case errors.As(c, new(NodeError)):
		return c
	case c != nil && !errors.Is(err, c):
		return c
	case away: // as a text: what a caller of a node could do about it is no help here
		return NodeError{errors.New("the node starts over and does not come back: " + err.Error())}
	}
	return err
}

// endsWithin is how much longer than its connections a node takes to end.
const endsWithin = 5 * time.Second

// room replays the trace from where it stands and verifies every mailbox.
func (d *demo) room(ctx context.Context, cl *client.Client, t *Trace, r *Result) error {
	from, err := resumePoint(ctx, cl, d.o.Tenant, t)
	if err != nil {
		return err
	}
	r.ResumedAt = from
	switch {
	case from == len(t.Events):
		d.out.line("room %s: all %d events are committed already", t.Room, len(t.Events))
	case from > 0:
		d.out.line("room %s: going on after event %d of %d", t.Room, from, len(t.Events))
	default:
		d.out.line("room %s: replaying %d events of %d people", t.Room, len(t.Events), len(t.Expected.Lines))
	}
	began := time.Now()
	bar := d.out.bar("replay", len(t.Events)).pace(from)
	if err := replay(ctx, cl, d.o.Tenant, t, from, bar.set); err != nil {
		return err
	}
	bar.end()
	r.CommitSeconds = time.Since(began).Seconds()
	if n := len(t.Events) - from; n > 0 {
		r.CommitsPerSec = float64(n) / r.CommitSeconds
	}
	verifyBegan := time.Now()
	bar = d.out.bar("pull and compare mailboxes", len(t.Expected.Lines)).pace(0)
	m, err := verify(ctx, cl, d.o.Tenant, t, func(users, _ int) { bar.set(users) })
	bar.end()
	if m != nil {
		r.Users, r.Entries, r.ByType, r.SHA256 = m.Users, m.Entries, m.ByType, m.SHA256
	}
	if err != nil {
		return err
	}
	r.EventsDispatched, r.PeakMembers = t.Expected.Dispatched, t.Expected.PeakMembers
	r.VerifySeconds = time.Since(verifyBegan).Seconds()
	r.EntriesPerSec = float64(r.Entries) / time.Since(began).Seconds()
	d.out.line("room %s: %d mailboxes, %d entries, each as the oracle says; sha256 %s", t.Room, r.Users, r.Entries, r.SHA256)
	return nil
}

// lateTemporal is the Temporal server being made ready beside the replay.
type lateTemporal struct {
	done  chan *localtemporal.Server // closed or one value when it stands or failed
	ready chan struct{}
	err   error
}

func (d *demo) startTemporal(ctx context.Context, l *lateTemporal) {
	if d.o.LargeGroup == 0 {
		close(l.done)
		return
	}
	dir := d.o.HistoryDir
	if dir == "" {
		dir = d.o.Config.DataDir + "/temporal"
	}
	go func() {
		defer close(l.done)
		said := time.Time{}
		s, err := localtemporal.Start(ctx, localtemporal.Options{
			Address: d.o.Config.Temporal.Address, Namespace: d.o.Config.Temporal.Namespace, DataDir: dir, UIPort: d.o.Config.Temporal.UIPort,
			Progress: func(p localtemporal.Progress) {
				if time.Since(said) > 5*time.Second {
					said = time.Now()
					d.out.line("%s", p)
				}
			},
			Logf: d.out.line,
		})
		d.temporal, l.err = s, err
		close(l.ready)
		if s != nil {
			l.done <- s
		}
	}()
}

// BareRoom writes as many entries as the room has straight into Pebble, in
// synced batches of 2,000, and returns entries per second: what the replay's
// rate is a ratio to.
func BareRoom(dir string, t *Trace) (float64, error) {
	tmpl, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: "demo", Seq: 1 << 48, ConversationID: t.Room, ConversationSeq: 1, MessageID: "m1000", SenderID: "u100", CreatedAt: time.Now().UnixMilli(),
	}, []mailbox.Event{{Type: mailbox.EventMessage}})
	if err != nil {
		return 0, err
	}
	var all []bare.Entries
	total := 0
	for total < t.total() {
		e := bare.Entries{Template: tmpl}
		for u := range t.Expected.Lines {
			e.Recipients = append(e.Recipients, mailbox.Recipient{User: u, Events: 1})
		}
		all = append(all, e)
		total += len(e.Recipients)
	}
	db, err := bare.OpenPebble(dir)
	if err != nil {
		return 0, err
	}
	n, took, err := db.Write(all, mailbox.ChunkEntries)
	if err := errors.Join(err, db.Close()); err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), nil
}

func (t *Trace) total() int {
	n := 0
	for _, l := range t.Expected.Lines {
		n += len(l)
	}
	return n
}
