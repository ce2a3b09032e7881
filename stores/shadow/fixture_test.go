package shadow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/stores/shadow"
)

const shards = 4

func openPebble(tb testing.TB) *pebble.Store {
	tb.Helper()
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: vfs.NewMem(), ShardCount: shards, ExpireEvery: -1, MemTableSize: 1 << 20})
	require.NoError(tb, err)
	return s
}

// opened is a shadow that is there from the beginning.
func opened(s mailbox.Store) shadow.Opener {
	return func(context.Context) (mailbox.Store, error) { return s, nil }
}

// logs collects what is logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fixture is a store with a shadow.
type fixture struct {
	t     *testing.T
	store *shadow.Store
	logs  *logs
}

// newFixture gives a Pebble store a shadow. Every scan is compared.
func newFixture(t *testing.T, open shadow.Opener, change func(o *shadow.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, logs: &logs{}}
	o := shadow.Options{Sample: 1, Settle: 100 * time.Millisecond, Timeout: 2 * time.Second, Drain: 2 * time.Second, Logger: slog.New(slog.NewJSONHandler(f.logs, nil))}
	if change != nil {
		change(&o)
	}
	f.store = shadow.New(openPebble(t), open, o)
	return f
}

func seq(offset int64) mailbox.Seq {
	s, err := mailbox.NewSeq(1, offset)
	if err != nil {
		panic(err)
	}
	return s
}

func user(id string) mailbox.User { return mailbox.User{Tenant: "tenant", ID: id} }

// chunk is one user's group of two entries.
func chunk(id string, offset int64) mailbox.ChunkAppend {
	s := seq(offset)
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: "tenant", Seq: s, ConversationID: "c", MessageID: fmt.Sprint("m", offset), SenderID: "s", CreatedAt: time.Now().UnixMilli(),
	}, []mailbox.Event{{Type: mailbox.EventMessage, Payload: []byte("secret words")}, {Type: mailbox.EventMention, Payload: []byte("secret words too")}})
	if err != nil {
		panic(err)
	}
	p := mailbox.Place(user(id), shards)
	return mailbox.ChunkAppend{Ref: mailbox.ChunkRef{Shard: p.Shard, Lane: p.Lane, Seq: s}, Template: t, Recipients: []mailbox.Recipient{{User: id, Events: 3}}}
}

func (f *fixture) put(id string, offsets ...int64) {
	f.t.Helper()
	for _, o := range offsets {
		for _, r := range f.store.AppendBatch(f.t.Context(), []mailbox.ChunkAppend{chunk(id, o)}) {
			require.NoError(f.t, r.Err)
		}
	}
}

func (f *fixture) scan(id string) (mailbox.Page, error) {
	return f.store.RangeScan(f.t.Context(), mailbox.Scan{User: user(id), UpTo: seq(1 << 40), Limits: mailbox.PageLimits{MaxItems: 100}})
}

// compared scans once and waits for the outcome.
func (f *fixture) compared(id string) shadow.Outcome {
	f.t.Helper()
	before := f.store.Stats().Scans
	_, err := f.scan(id)
	if !errors.Is(err, mailbox.ErrCursorExpired) {
		require.NoError(f.t, err)
	}
	var out shadow.Outcome
	require.Eventually(f.t, func() bool {
		for o, n := range f.store.Stats().Scans {
			if n > before[o] {
				out = o
				return true
			}
		}
		return false
	}, 20*time.Second, time.Millisecond)
	return out
}

func (f *fixture) drained() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(f.t, f.store.Drained(ctx))
}

func (f *fixture) close() {
	f.t.Helper()
	require.NoError(f.t, f.store.Close())
}
