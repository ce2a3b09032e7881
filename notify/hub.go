package notify

import (
	"sync"
	"sync/atomic"

	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/presence"
)

// Config is what a Hub is made of.
type Config struct {
	Shards int // shard_count
	// Table says who is present. The hub holds the users of open streams in it.
	Table *presence.Table
	// Watermark returns the durable W of a lane that is served here, for users who
	// came online.
	Watermark func(p mailbox.Placement) (mailbox.Seq, error)
	// Feeds is how many may be open (64).
	Feeds int
	// Chosen is told of how many members of a group, out of how many in the lane, a
	// dispatch was worth telling to; nil: nobody.
	Chosen func(chosen, members int)
}

const defaultFeeds = 64

// Hub connects the shards of a node with those who wait. It is safe for
// concurrent use.
type Hub struct {
	cfg    Config
	shards []shardStreams
	feeds  feeds
}

// shardStreams is the open streams of one shard.
type shardStreams struct {
	open atomic.Int64

	mu    sync.Mutex
	ended bool
	lanes [mailbox.LaneCount]map[mailbox.User]map[chan struct{}]struct{}
}

// NewHub returns a hub that nobody waits at.
func NewHub(c Config) *Hub {
	if c.Feeds <= 0 {
		c.Feeds = defaultFeeds
	}
	if c.Chosen == nil {
		c.Chosen = func(int, int) {}
	}
	return &Hub{cfg: c, shards: make([]shardStreams, c.Shards), feeds: feeds{max: c.Feeds}}
}

// Watch returns a channel that gets a tick after W of the user's lane passed
// something that may be the user's; ticks coalesce. It is closed when the shard
// is not served here any more. stop ends the watch and may be called after that.
//
// Whoever reads W after Watch has returned misses nothing: what becomes visible
// later is told.
func (h *Hub) Watch(u mailbox.User) (changed <-chan struct{}, stop func()) {
	place := mailbox.Place(u, h.cfg.Shards)
	s := &h.shards[place.Shard]
	ch := make(chan struct{}, 1)
	// Present before he is counted, and counted before he is in the lane: whoever
	// finds him wanted finds him.
	release := h.cfg.Table.Hold(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		release()
		close(ch)
		return ch, func() {}
	}
	if s.lanes[place.Lane] == nil {
		s.lanes[place.Lane] = map[mailbox.User]map[chan struct{}]struct{}{}
	}
	of := s.lanes[place.Lane][u]
	if of == nil {
		of = map[chan struct{}]struct{}{}
		s.lanes[place.Lane][u] = of
	}
	of[ch] = struct{}{}
	s.open.Add(1)
	return ch, sync.OnceFunc(func() {
		release()
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := of[ch]; !ok {
			return // the shard ended
		}
		s.open.Add(-1)
		if delete(of, ch); len(of) == 0 {
			delete(s.lanes[place.Lane], u)
		}
	})
}

// Wanted implements ingest.News.
func (h *Hub) Wanted(shard mailbox.Shard) bool {
	return h.shards[shard].open.Load() > 0 || h.feeds.open.Load() > 0
}

// Visible implements ingest.News.
func (h *Hub) Visible(shard mailbox.Shard, lane mailbox.Lane, w mailbox.Seq, passed []news.Item, all bool) {
	s := &h.shards[shard]
	if all {
		// It may be anybody's: each looks for himself.
		s.mu.Lock()
		for _, of := range s.lanes[lane] {
			tick(of)
		}
		s.mu.Unlock()
		h.feeds.all()
		return
	}
	for i := range passed {
		it := &passed[i]
		users := it.Users
		if it.Audience != nil {
			present := it.Audience.Present(h.cfg.Table, lane)
			users = make([]string, len(present))
			for j := range present {
				users[j] = present[j].User
			}
			h.cfg.Chosen(len(users), len(it.Audience.Lanes[lane]))
		}
		s.tell(lane, it.Tenant, users)
		h.tellFeeds(it.Tenant, users, w)
	}
}

func (s *shardStreams) tell(lane mailbox.Lane, tenant string, users []string) {
	if s.open.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lanes[lane]) == 0 {
		return
	}
	for _, u := range users {
		tick(s.lanes[lane][mailbox.User{Tenant: tenant, ID: u}])
	}
}

func tick(of map[chan struct{}]struct{}) {
	for ch := range of {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Ended implements ingest.News: the streams of the shard end.
func (h *Hub) Ended(shard mailbox.Shard) {
	s := &h.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for lane := range s.lanes {
		for _, of := range s.lanes[lane] {
			for ch := range of {
				close(ch)
				delete(of, ch)
				s.open.Add(-1)
			}
		}
		s.lanes[lane] = nil
	}
}

// tellFeeds names those of the users who have a device online.
func (h *Hub) tellFeeds(tenant string, users []string, w mailbox.Seq) {
	if len(users) == 0 || !h.feeds.of(tenant) {
		return
	}
	online := make([]string, 0, len(users))
	h.cfg.Table.View(func(v presence.View) {
		for _, u := range users {
			if v.Online(v.Hash(mailbox.User{Tenant: tenant, ID: u})) {
				online = append(online, u)
			}
		}
	})
	h.feeds.tell(tenant, online, w)
}

// CameOnline tells the feeds of a user who has a device online and had none: what
// became visible before that was known was told to nobody.
func (h *Hub) CameOnline(u mailbox.User) {
	if !h.feeds.of(u.Tenant) {
		return
	}
	w, err := h.cfg.Watermark(mailbox.Place(u, h.cfg.Shards))
	if err != nil {
		return // not served here, or closed: his pull says so
	}
	h.feeds.tell(u.Tenant, []string{u.ID}, w)
}

// Rebuilt tells the feeds that only now it is known who is online.
func (h *Hub) Rebuilt() { h.feeds.all() }
