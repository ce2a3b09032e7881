package conversation

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// fault is what happens to one call that leaves a process.
type fault int

const (
	noFault     fault = iota
	crashBefore       // the process dies, the call is not carried out
	crashAfter        // the call is carried out and the process dies
	lostBefore        // the call fails, not carried out
	lostAfter         // the call is carried out, its answer is lost
	faultCount

	// Only for publishing: the record lands when the outbox is told so.
	crashLate // the process is dead by then
	waitLate  // the process waits for it
)

var faultNames = map[fault]string{
	noFault: "no fault", crashBefore: "crash before", crashAfter: "crash after", lostBefore: "lost before", lostAfter: "lost after",
	crashLate: "crash, lands late", waitLate: "lands late",
}

// process is one process of a deployment: every call of its service to the
// outside may meet a fault, and after a crash all fail.
type process struct {
	mailbox.HeadStore
	mailbox.MembershipStore
	state  CommitStore
	d      *deployment
	serve  *Service
	beatMu sync.Mutex

	mu    sync.Mutex
	calls int
	dead  bool
	next  func(call int, op string) fault
}

// atPublish is what becomes of each publication; everything else is well.
func atPublish(what fault) func(int, string) fault {
	return func(_ int, op string) fault {
		if op == "publish" {
			return what
		}
		return noFault
	}
}

func startProcess(t require.TestingT, d *deployment, next func(int, string) fault) *process {
	return startOn(t, d, d.store, next)
}

func startOn(t require.TestingT, d *deployment, store mailbox.Store, next func(int, string) fault) *process {
	p := &process{HeadStore: store, MembershipStore: store, state: store, d: d, next: next}
	cfg := d.config()
	cfg.Heads, cfg.Members, cfg.Blobs, cfg.Publisher, cfg.State, cfg.Outbox = p, p, p, p, p, p
	s, err := New(cfg)
	require.NoError(t, err)
	p.serve = s
	return p
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *process) crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// call carries out f unless the fault of this call says otherwise.
func (p *process) call(op string, lost error, f func() error) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errCrashed
	}
	p.calls++
	n := p.calls
	p.mu.Unlock()
	what := noFault
	if p.next != nil {
		what = p.next(n, op)
	}
	if what == crashBefore || what == crashAfter || what == crashLate {
		p.kill()
	}
	switch what {
	case crashLate:
		p.d.outbox.delay(func() { _ = f() })
		return errCrashed
	case waitLate:
		landed := make(chan struct{})
		p.d.outbox.delay(func() { _ = f(); close(landed) })
		<-landed
		if p.crashed() {
			return errCrashed
		}
		return nil
	case crashBefore:
		return errCrashed
	case lostBefore:
		return lost
	}
	err := f()
	switch {
	case what == crashAfter:
		return errCrashed
	case what == lostAfter && err == nil:
		return lost
	case p.crashed():
		return errCrashed // it died while it waited
	}
	return err
}

func (p *process) Head(ctx context.Context, c mailbox.Conversation) (b []byte, revision uint64, err error) {
	err = p.call("read head", errLost, func() error {
		b, revision, err = p.HeadStore.Head(ctx, c)
		return err
	})
	return b, revision, err
}

func (p *process) CompareAndSetHead(ctx context.Context, c mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	op := "clear"
	if durable {
		op = "decide"
	}
	return p.call(op, mailbox.ErrOutcomeUnknown, func() error {
		return p.HeadStore.CompareAndSetHead(ctx, c, revision, data, durable)
	})
}

func (p *process) Committed(ctx context.Context, c mailbox.Conversation, sender, id string) (b []byte, err error) {
	err = p.call("look up", errLost, func() error {
		b, err = p.HeadStore.Committed(ctx, c, sender, id)
		return err
	})
	return b, err
}

func (p *process) PutCommitted(ctx context.Context, c mailbox.Conversation, sender, id string, data []byte) error {
	return p.call("write look-up row", errLost, func() error {
		return p.HeadStore.PutCommitted(ctx, c, sender, id, data)
	})
}

func (p *process) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	return p.call("write version", errLost, func() error { return p.MembershipStore.PutVersion(ctx, w) })
}

func (p *process) Publish(ctx context.Context, partition int32, record []byte) error {
	return p.call("publish", errLost, func() error { return p.d.outbox.Publish(ctx, partition, record) })
}

func (p *process) Append(ctx context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error) {
	op := "mark"
	if kind == records.OutboxAnswer {
		op = "keep answer"
	}
	var at atomic.Int64 // it may land after this returned
	err := p.call(op, errLost, func() error {
		offset, err := p.d.outbox.Append(ctx, partition, kind, value)
		at.Store(offset)
		return err
	})
	return at.Load(), err
}

func (p *process) Starts(ctx context.Context) (at []int64, err error) {
	err = p.call("read starts", errLost, func() error { at, err = p.d.outbox.Starts(ctx); return err })
	return at, err
}

func (p *process) Ends(ctx context.Context) (at []int64, err error) {
	err = p.call("read ends", errLost, func() error { at, err = p.d.outbox.Ends(ctx); return err })
	return at, err
}

func (p *process) Read(ctx context.Context, partition int32, from, end int64, f func([]records.Logged) error) error {
	return p.d.outbox.Read(ctx, partition, from, end, f)
}

func (p *process) Incarnation() string { return p.state.Incarnation() }

func (p *process) LoadCommitState(ctx context.Context) (st mailbox.CommitState, revision uint64, err error) {
	err = p.call("read commit state", errLost, func() error {
		st, revision, err = p.state.LoadCommitState(ctx)
		return err
	})
	return st, revision, err
}

func (p *process) CompareAndSetCommitState(ctx context.Context, revision uint64, st mailbox.CommitState) error {
	return p.call("write commit state", mailbox.ErrOutcomeUnknown, func() error {
		return p.state.CompareAndSetCommitState(ctx, revision, st)
	})
}

func (p *process) Put(ctx context.Context, key string, data []byte) error {
	return p.call("put blob", errLost, func() error { return p.d.blobs.Put(ctx, key, data) })
}

func (p *process) Get(ctx context.Context, key string, digest mailbox.Digest, maxBytes int64) (b []byte, err error) {
	err = p.call("get blob", errLost, func() error {
		b, err = p.d.blobs.Get(ctx, key, digest, maxBytes)
		return err
	})
	return b, err
}

// powered is a deployment whose power can fail: what the store did not sync is
// lost.
type powered struct {
	*deployment
	fs *vfs.MemFS
}

func newPowered(t require.TestingT, ctx context.Context) *powered {
	b, err := blobs.Open(ctx, "mem://")
	require.NoError(t, err)
	fs := vfs.NewCrashableMem()
	return &powered{&deployment{store: openStore(t, fs), blobs: b, outbox: newOutbox(), limits: Limits{InlineChangeBytes: 150}}, fs}
}

func (p *powered) close() {
	_ = p.store.Close()
	_ = p.blobs.Close()
}

// fail cuts the power; all processes must be dead. keep is the share of the
// unsynced data that survives, in percent.
func (p *powered) fail(t require.TestingT, cfg vfs.CrashCloneCfg) {
	clone := p.fs.CrashClone(cfg)
	_ = p.store.Close()
	p.fs = clone
	p.store = openStore(t, clone)
}
