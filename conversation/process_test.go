package conversation

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
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
)

var faultNames = [faultCount]string{"no fault", "crash before", "crash after", "lost before", "lost after"}

// process is one process of a deployment: every call of its service to the
// outside may meet a fault, and after a crash all fail.
type process struct {
	mailbox.HeadStore
	mailbox.MembershipStore
	d     *deployment
	serve *Service

	mu    sync.Mutex
	calls int
	dead  bool
	next  func(call int, op string) fault
}

func startProcess(t require.TestingT, d *deployment, next func(int, string) fault) *process {
	p := &process{HeadStore: d.store, MembershipStore: d.store, d: d, next: next}
	cfg := d.config()
	cfg.Heads, cfg.Members, cfg.Blobs, cfg.Publisher = p, p, p, p
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
	if what == crashBefore || what == crashAfter {
		p.kill()
	}
	switch what {
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
	return &powered{&deployment{store: openStore(t, fs), blobs: b, outbox: &outbox{}, limits: Limits{InlineChangeBytes: 150}}, fs}
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
