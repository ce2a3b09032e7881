package presence

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Event says that a device was online, or offline, at a time.
type Event struct {
	User   mailbox.User
	Device string
	Online bool
	At     int64 // Unix ms
}

// Outcome is what an event did.
type Outcome string

// The outcomes, which are metric labels.
const (
	Applied Outcome = "applied"
	Stale   Outcome = "stale"   // not newer than what is known of the device
	Expired Outcome = "expired" // older than the time-to-live
	Full    Outcome = "full"    // the table, or the user, has as many devices as allowed
)

// Limits bound a Table. Zero values take the defaults.
type Limits struct {
	// TTL is for how long an event counts (5 minutes): a device that is still
	// online must say so again within it.
	TTL time.Duration
	// Devices in all (1,000,000), and of one user (32).
	Devices, DevicesPerUser int
}

const (
	// DefaultTTL is what a zero Limits.TTL means.
	DefaultTTL = 5 * time.Minute
	// DefaultDevices is what a zero Limits.Devices means.
	DefaultDevices = 1_000_000

	defaultDevicesPerUser = 32
	// maxChanges is how far back [View.Changes] reaches.
	maxChanges = 1 << 16
)

// Table knows the devices of users, online or lately offline, and which users are
// present: with a device online, or held by a stream of this process. A user is
// kept by a 64-bit hash of tenant and id under a seed of the process: two users
// with the same one are taken for one, which costs a notification too many. Safe
// for concurrent use.
type Table struct {
	limits Limits
	seed   maphash.Seed

	mu      sync.RWMutex
	users   map[uint64]person
	devices int
	online  int // users with a device online
	// changes is a ring of the users who became present or absent; changed counts
	// them from the beginning.
	changes []uint64
	changed uint64
}

// person is one user. The counts are those of the last event or expiry.
type person struct {
	devices []device
	online  int32
	holds   int32
}

func (p *person) present() bool { return p.online > 0 || p.holds > 0 }

// device has its newest event: the time, and in the lowest bit whether it said
// online. So a larger stamp is the newer event, and of two at the same time
// online counts, whatever came first: a notification too many does less harm.
type device struct {
	id    string
	stamp int64
}

func stamp(at int64, online bool) int64 {
	if online {
		return at<<1 | 1
	}
	return at << 1
}

func (d device) online() bool { return d.stamp&1 == 1 }
func (d device) at() int64    { return d.stamp >> 1 }

// NewTable returns an empty table.
func NewTable(l Limits) *Table {
	if l.TTL <= 0 {
		l.TTL = DefaultTTL
	}
	if l.Devices <= 0 {
		l.Devices = DefaultDevices
	}
	if l.DevicesPerUser <= 0 {
		l.DevicesPerUser = defaultDevicesPerUser
	}
	return &Table{limits: l, seed: maphash.MakeSeed(), users: map[uint64]person{}}
}

// TTL returns for how long an event counts.
func (t *Table) TTL() time.Duration { return t.limits.TTL }

// Hash names a user in this table's views.
func (t *Table) Hash(u mailbox.User) uint64 { return maphash.Comparable(t.seed, u) }

// oldest returns the time at and below which an event does not count any more.
func (t *Table) oldest(now time.Time) int64 { return now.Add(-t.limits.TTL).UnixMilli() }

// Apply takes an event. came says that the user had no device online before it
// and has one now.
func (t *Table) Apply(e Event, now time.Time) (outcome Outcome, came bool) {
	oldest := t.oldest(now)
	if e.At <= oldest {
		return Expired, false
	}
	h := t.Hash(e.User)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.users[h]
	before := p
	t.prune(&p, oldest)
	outcome = t.take(&p, e)
	t.put(h, before, p)
	return outcome, before.online == 0 && p.online > 0
}

// take applies an event to a user.
func (t *Table) take(p *person, e Event) Outcome {
	s := stamp(e.At, e.Online)
	for i := range p.devices {
		d := &p.devices[i]
		if d.id != e.Device {
			continue
		}
		if s <= d.stamp {
			return Stale
		}
		if d.online() {
			p.online--
		}
		d.stamp = s
		if e.Online {
			p.online++
		}
		return Applied
	}
	// Offline ones are kept too, until no older event of theirs counts any more.
	if t.devices >= t.limits.Devices || len(p.devices) >= t.limits.DevicesPerUser {
		return Full
	}
	p.devices = append(p.devices, device{strings.Clone(e.Device), s})
	t.devices++
	if e.Online {
		p.online++
	}
	return Applied
}

// prune drops the devices whose last event does not count any more.
func (t *Table) prune(p *person, oldest int64) {
	n := len(p.devices)
	p.devices = slices.DeleteFunc(p.devices, func(d device) bool {
		gone := d.at() <= oldest
		if gone && d.online() {
			p.online--
		}
		return gone
	})
	t.devices -= n - len(p.devices)
	if len(p.devices) == 0 {
		p.devices = nil
	}
}

// put stores a user who was changed.
func (t *Table) put(h uint64, before, p person) {
	if (before.online > 0) != (p.online > 0) {
		if p.online > 0 {
			t.online++
		} else {
			t.online--
		}
	}
	if before.present() != p.present() {
		if i := t.changed % maxChanges; int(i) < len(t.changes) {
			t.changes[i] = h
		} else {
			t.changes = append(t.changes, h)
		}
		t.changed++
	}
	if p.devices == nil && p.holds == 0 {
		delete(t.users, h)
		return
	}
	t.users[h] = p
}

// Expire drops what does not count any more at a time. Call it every now and
// then: until it is called, a device whose time is over still counts as online.
func (t *Table) Expire(now time.Time) {
	oldest := t.oldest(now)
	// Most have nothing to drop: looking keeps no reader waiting.
	var due []uint64
	t.mu.RLock()
	for h, p := range t.users {
		if slices.ContainsFunc(p.devices, func(d device) bool { return d.at() <= oldest }) {
			due = append(due, h)
		}
	}
	t.mu.RUnlock()
	const each = 1000 // users in one go, so that nobody waits long
	for part := range slices.Chunk(due, each) {
		t.mu.Lock()
		for _, h := range part {
			p := t.users[h]
			before := p
			t.prune(&p, oldest)
			t.put(h, before, p)
		}
		t.mu.Unlock()
	}
}

// Hold makes a user present, whatever events say, until release is called: a
// stream of this process waits for the user's news.
func (t *Table) Hold(u mailbox.User) (release func()) {
	h := t.Hash(u)
	add := func(n int32) {
		t.mu.Lock()
		defer t.mu.Unlock()
		p := t.users[h]
		before := p
		p.holds += n
		t.put(h, before, p)
	}
	add(1)
	return sync.OnceFunc(func() { add(-1) })
}

// DeviceState is the newest event of a device that counts.
type DeviceState struct {
	Device string
	Online bool
	At     int64 // Unix ms
}

// Devices returns a user's devices at a time, by id.
func (t *Table) Devices(u mailbox.User, now time.Time) []DeviceState {
	oldest := t.oldest(now)
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []DeviceState
	for _, d := range t.users[t.Hash(u)].devices {
		if d.at() > oldest {
			out = append(out, DeviceState{d.id, d.online(), d.at()})
		}
	}
	slices.SortFunc(out, func(a, b DeviceState) int { return strings.Compare(a.Device, b.Device) })
	return out
}

// Stats returns how many users have a device online, and how many devices are
// kept.
func (t *Table) Stats() (online, devices int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.online, t.devices
}

// View is a Table that stands still. It is valid within [Table.View] only.
type View struct{ t *Table }

// View calls f while the table stands still. f must be short and must not call
// the table.
func (t *Table) View(f func(v View)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f(View{t})
}

// Mark is a place in the order of changes, for Changes.
func (v View) Mark() uint64 { return v.t.changed }

// Changes calls f with the users who became present or absent since a mark, some
// of them more than once. It reports false, and does nothing, when that is too
// long ago.
func (v View) Changes(since uint64, f func(hash uint64)) bool {
	if v.t.changed-since > uint64(len(v.t.changes)) {
		return false
	}
	for i := since; i < v.t.changed; i++ {
		f(v.t.changes[i%maxChanges])
	}
	return true
}

// Present reports whether a user has a device online or is held.
func (v View) Present(hash uint64) bool {
	p := v.t.users[hash]
	return p.present()
}

// Online reports whether a user has a device online.
func (v View) Online(hash uint64) bool { return v.t.users[hash].online > 0 }

// Hash is that of the table.
func (v View) Hash(u mailbox.User) uint64 { return v.t.Hash(u) }
