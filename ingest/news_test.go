package ingest_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
)

// hearing is somebody who wants to hear, and what was told.
type hearing struct {
	mu     sync.Mutex
	wanted bool
	of     *running                // whose W is compared
	named  map[string]mailbox.Seq  // users named, with the W that they were told of
	all    map[mailbox.Lane]uint64 // how often everybody in a lane was told to look
	low    []mailbox.Seq           // W that was told of and not there
	ended  bool
}

func newHearing() *hearing {
	return &hearing{wanted: true, named: map[string]mailbox.Seq{}, all: map[mailbox.Lane]uint64{}}
}

func (h *hearing) Wanted(mailbox.Shard) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted
}

func (h *hearing) want(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = yes
}

func (h *hearing) compare(r *running) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of = r
}

func (h *hearing) Visible(_ mailbox.Shard, lane mailbox.Lane, w mailbox.Seq, passed []news.Item, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of != nil && h.of.W(lane) < w {
		h.low = append(h.low, w)
	}
	if all {
		h.all[lane]++
	}
	for _, it := range passed {
		users := it.Users
		if it.Audience != nil {
			users = nil
			for _, m := range it.Audience.Lanes[lane] {
				users = append(users, m.User)
			}
		}
		for _, u := range users {
			h.named[u] = max(h.named[u], w)
		}
	}
}

func (h *hearing) Ended(mailbox.Shard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

func (h *hearing) users() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.named))
}

func (h *hearing) everybody(lane mailbox.Lane) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[lane]
}

// TestThoseAreToldForWhomSomethingIs: after W moved, the users of a single chat, of
// a group and of an event that names some are told of, and nobody else; also those
// of a group whose audience could not be read at first.
func TestThoseAreToldForWhomSomethingIs(t *testing.T) {
	w := newWorld(t, 70)
	h := newHearing()
	w.news = h
	us := w.usersIn(6, 13)
	other := w.userIn(14)
	elsewhere := "x0" // a user of the other shard
	for i := 1; mailbox.Place(mailbox.User{Tenant: tenant, ID: elsewhere}, shards).Shard == testShard; i++ {
		elsewhere = fmt.Sprint("x", i)
	}
	v := w.version("g", 1, us[0], us[1], other)
	late := w.version("late", 1, us[5])
	s := w.run()
	h.compare(s)
	w.audiences.readable(false)
	w.send(w.group("late", 1, late))
	w.until("it is admitted", func() bool { return s.Status(false).Unreadable == 1 })
	w.send(single("s", 2, us[2], elsewhere))
	w.audiences.readable(true)
	w.send(w.group("g", 2, v))
	named := w.group("g", 3, v)
	named.Events = []records.Event{{Type: mailbox.EventMention, Users: []string{us[0], us[3]}}}
	w.send(named)
	s.drained()
	want := []string{us[0], us[1], us[2], us[5], other}
	slices.Sort(want)
	w.until("they are told", func() bool { return slices.Equal(want, h.users()) })
	require.Zero(t, h.everybody(13), "nobody had to look without a reason")
	require.Empty(t, h.low, "who is told finds W where it was said to be")
	w.check()
	s.stop()
	require.True(t, h.ended)
}

// TestWhatIsNotKnownIsToldToEverybody: dispatches that were admitted while nobody
// wanted to hear, and those that an earlier owner made durable without committing
// W.
func TestWhatIsNotKnownIsToldToEverybody(t *testing.T) {
	w := newWorld(t, 71)
	h := newHearing()
	h.want(false)
	w.news = h
	us := w.usersIn(3, 13)
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Lane(13)})
	r := w.run()
	w.send(single("s", 1, us[0]))
	await(t, "the fault", fault.Hit())
	h.want(true) // its item was not kept
	fault.Heal()
	r.drained()
	w.until("everybody looks", func() bool { return h.everybody(13) > 0 })
	require.Empty(t, h.users())
	before := h.everybody(13)
	w.send(single("s", 2, us[1]))
	r.drained()
	w.until("it is known again", func() bool { return slices.Equal([]string{us[1]}, h.users()) })
	require.Equal(t, before, h.everybody(13))

	// The marks are durable, W is not: the next owner resumes what is complete.
	commits := w.store.Inject(faulty.Fault{Op: faulty.Commit, Mode: faulty.Fail})
	d := single("s", 3, us[2])
	w.send(d)
	await(t, "the fault", commits.Hit())
	w.until("it is durable", func() bool {
		rows, err := w.pebble.LookupDispatches(t.Context(), testShard, []mailbox.DispatchID{d.DispatchID})
		return err == nil && rows[0] != nil && rows[0].Complete()
	})
	r.stop()
	h = newHearing()
	w.news = h
	r = w.run()
	r.drained()
	w.until("everybody looks", func() bool { return h.everybody(13) > 0 })
	w.check()
}
