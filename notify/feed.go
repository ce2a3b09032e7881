package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/laneway/laneway/mailbox"
)

const (
	// MaxPending is how many users a feed keeps for a reader that is behind. Beyond
	// it they are dropped and the reader is told to pull for everybody.
	MaxPending = 100_000
	// MaxBatch is how many users one batch names.
	MaxBatch = 1000
)

// ErrTooManyFeeds: the node has as many as it may.
var ErrTooManyFeeds = errors.New("too many notification feeds")

// News is a user who may have something new to pull.
type News struct {
	User string
	W    mailbox.Seq // of the lane: a pull covers at least this
}

// Batch is what a feed tells at once.
type Batch struct {
	// All: users may have been left out. Pull for everybody who is connected.
	All  bool
	News []News
}

// Feed is a gateway's stream of news. Users are named once however often they are
// told of before it is read.
type Feed struct {
	feeds  *feeds
	tenant string

	mu      sync.Mutex
	pending map[string]mailbox.Seq
	all     bool
	ready   chan struct{} // 1: something is there
}

// feeds are the open feeds by tenant.
type feeds struct {
	max  int
	open atomic.Int64

	mu       sync.Mutex
	byTenant map[string]map[*Feed]struct{}
}

// Feed opens a feed of a tenant's users. The first batch says All. Close it.
func (h *Hub) Feed(tenant string) (*Feed, error) {
	f := &Feed{feeds: &h.feeds, tenant: tenant, ready: make(chan struct{}, 1)}
	f.tellAll()
	fs := &h.feeds
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if int(fs.open.Load()) >= fs.max {
		return nil, fmt.Errorf("%w: this node has %d, its limit; a gateway needs one for all of its users", ErrTooManyFeeds, fs.max)
	}
	if fs.byTenant == nil {
		fs.byTenant = map[string]map[*Feed]struct{}{}
	}
	if fs.byTenant[tenant] == nil {
		fs.byTenant[tenant] = map[*Feed]struct{}{}
	}
	fs.byTenant[tenant][f] = struct{}{}
	fs.open.Add(1)
	return f, nil
}

// Close ends the feed.
func (f *Feed) Close() {
	fs := f.feeds
	fs.mu.Lock()
	defer fs.mu.Unlock()
	of := fs.byTenant[f.tenant]
	if _, ok := of[f]; !ok {
		return
	}
	fs.open.Add(-1)
	if delete(of, f); len(of) == 0 {
		delete(fs.byTenant, f.tenant)
	}
}

// Next waits for news and takes some of it.
func (f *Feed) Next(ctx context.Context) (Batch, error) {
	select {
	case <-ctx.Done():
		return Batch{}, ctx.Err()
	case <-f.ready:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := Batch{All: f.all}
	f.all = false
	for u, w := range f.pending {
		if len(b.News) == MaxBatch {
			f.wake()
			return b, nil
		}
		b.News = append(b.News, News{u, w})
		delete(f.pending, u)
	}
	f.pending = nil
	return b, nil
}

func (f *Feed) wake() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

func (f *Feed) tell(users []string, w mailbox.Seq) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending == nil {
		f.pending = make(map[string]mailbox.Seq, len(users))
	}
	for _, u := range users {
		if _, ok := f.pending[u]; !ok && len(f.pending) >= MaxPending {
			f.pending, f.all = nil, true
			break
		}
		f.pending[u] = max(f.pending[u], w)
	}
	f.wake()
}

func (f *Feed) tellAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending, f.all = nil, true
	f.wake()
}

// of reports whether a tenant has a feed.
func (fs *feeds) of(tenant string) bool {
	if fs.open.Load() == 0 {
		return false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byTenant[tenant]) > 0
}

func (fs *feeds) tell(tenant string, users []string, w mailbox.Seq) {
	if len(users) == 0 {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := range fs.byTenant[tenant] {
		f.tell(users, w)
	}
}

// all tells every feed to pull for everybody.
func (fs *feeds) all() {
	if fs.open.Load() == 0 {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, of := range fs.byTenant {
		for f := range of {
			f.tellAll()
		}
	}
}
