package presence

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

var start = time.UnixMilli(1_700_000_000_000)

func user(id string) mailbox.User { return mailbox.User{Tenant: "acme", ID: id} }

// naive knows every event there ever was.
type naive struct {
	ttl    time.Duration
	events []Event
}

// newest returns, of each device of a user, the event that counts at a time.
func (n *naive) newest(u mailbox.User, now time.Time) []DeviceState {
	best := map[string]DeviceState{}
	for _, e := range n.events {
		if e.User != u || e.At <= now.Add(-n.ttl).UnixMilli() {
			continue
		}
		b, ok := best[e.Device]
		if !ok || e.At > b.At || e.At == b.At && e.Online {
			best[e.Device] = DeviceState{e.Device, e.Online, e.At}
		}
	}
	var out []DeviceState
	for _, d := range best {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b DeviceState) int { return strings.Compare(a.Device, b.Device) })
	return out
}

func online(ds []DeviceState) bool {
	return slices.ContainsFunc(ds, func(d DeviceState) bool { return d.Online })
}

// Several devices of several users; events come out of order, twice, or never;
// time passes; streams come and go. After each step the table says what the naive
// model says, and a reader that only looks at the changes knows it too.
func TestTableAgreesWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = 100 * time.Millisecond
		table := NewTable(Limits{TTL: ttl})
		model := &naive{ttl: ttl}
		users := []mailbox.User{user("ann"), user("bob"), {Tenant: "other", ID: "ann"}}
		holds := map[mailbox.User][]func(){}
		present := map[uint64]bool{} // as a reader keeps it by changes
		var mark uint64
		now := start
		var sent []Event
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			u := rapid.SampledFrom(users).Draw(t, "user")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "pass")) * time.Millisecond)
			case 1:
				holds[u] = append(holds[u], table.Hold(u))
			case 2:
				if n := len(holds[u]); n > 0 {
					holds[u][n-1]()
					holds[u][n-1]() // once is enough
					holds[u] = holds[u][:n-1]
				}
			case 3:
				if len(sent) > 0 { // once more, much later
					table.Apply(rapid.SampledFrom(sent).Draw(t, "again"), now)
				}
			default:
				e := Event{
					User: u, Device: rapid.SampledFrom([]string{"phone", "tablet", "web"}).Draw(t, "device"), Online: rapid.Bool().Draw(t, "online"),
					At: now.UnixMilli() - rapid.Int64Range(0, 130).Draw(t, "late"),
				}
				was := online(table.Devices(u, now))
				table.Expire(now)
				model.events, sent = append(model.events, e), append(sent, e)
				_, came := table.Apply(e, now)
				require.Equal(t, !was && online(model.newest(u, now)), came)
			}
			table.Expire(now)
			count := 0
			table.View(func(v View) {
				require.True(t, v.Changes(mark, func(h uint64) { present[h] = v.Present(h) }))
				mark = v.Mark()
				for _, u := range users {
					want := online(model.newest(u, now))
					require.Equal(t, want, v.Online(v.Hash(u)))
					require.Equal(t, want || len(holds[u]) > 0, v.Present(v.Hash(u)))
					require.Equal(t, v.Present(v.Hash(u)), present[v.Hash(u)], "by changes")
					if want {
						count++
					}
				}
			})
			for _, u := range users {
				require.Equal(t, model.newest(u, now), table.Devices(u, now))
			}
			got, _ := table.Stats()
			require.Equal(t, count, got)
		}
		for _, hs := range holds {
			for _, release := range hs {
				release()
			}
		}
		table.Expire(now.Add(2 * ttl))
		require.Empty(t, table.users, "nothing is kept of who is gone")
		require.Zero(t, table.devices)
	})
}

// The order in which events come makes no difference to what they come to.
func TestOrderOfEventsMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Event {
			return Event{
				User: user("ann"), Device: rapid.SampledFrom([]string{"phone", "web"}).Draw(t, "device"), Online: rapid.Bool().Draw(t, "online"),
				At: start.UnixMilli() + rapid.Int64Range(0, 5).Draw(t, "at"),
			}
		}), 1, 12).Draw(t, "events")
		one, other := NewTable(Limits{}), NewTable(Limits{})
		for _, e := range events {
			one.Apply(e, start)
		}
		for _, e := range rapid.Permutation(append(events, events...)).Draw(t, "other order") {
			other.Apply(e, start)
		}
		require.Equal(t, one.Devices(user("ann"), start), other.Devices(user("ann"), start))
	})
}

// A device whose offline event was lost counts as offline when its time is over.
func TestALostOfflineEventHeals(t *testing.T) {
	table := NewTable(Limits{TTL: time.Minute})
	e := Event{User: user("ann"), Device: "phone", Online: true, At: start.UnixMilli()}
	outcome, came := table.Apply(e, start)
	require.Equal(t, Applied, outcome)
	require.True(t, came)
	e.At = start.Add(50 * time.Second).UnixMilli()
	outcome, came = table.Apply(e, start.Add(50*time.Second)) // it says so again
	require.Equal(t, Applied, outcome)
	require.False(t, came)
	isOnline := func() (is bool) {
		table.View(func(v View) { is = v.Online(v.Hash(user("ann"))) })
		return is
	}
	table.Expire(start.Add(100 * time.Second))
	require.True(t, isOnline())
	table.Expire(start.Add(110 * time.Second))
	require.False(t, isOnline())
	outcome, _ = table.Apply(e, start.Add(110*time.Second))
	require.Equal(t, Expired, outcome)
}

func TestTableIsBounded(t *testing.T) {
	table := NewTable(Limits{TTL: time.Minute, Devices: 10, DevicesPerUser: 3})
	apply := func(u, device string, on bool, now time.Time) Outcome {
		outcome, _ := table.Apply(Event{User: user(u), Device: device, Online: on, At: now.UnixMilli()}, now)
		return outcome
	}
	for i := range 3 {
		require.Equal(t, Applied, apply("ann", fmt.Sprint(i), true, start))
	}
	require.Equal(t, Full, apply("ann", "3", true, start))
	for i := range 7 {
		require.Equal(t, Applied, apply(fmt.Sprint("u", i), "phone", true, start))
	}
	require.Equal(t, Full, apply("zoe", "phone", true, start))
	require.NotContains(t, table.users, table.Hash(user("zoe")))
	require.Equal(t, Applied, apply("ann", "0", false, start.Add(time.Second)), "who is known is heard")
	release := table.Hold(user("zoe"))
	table.View(func(v View) { require.True(t, v.Present(v.Hash(user("zoe"))), "a stream needs no room") })
	release()
	later := start.Add(2 * time.Minute)
	table.Expire(later)
	require.Equal(t, Applied, apply("zoe", "phone", true, later), "when there is room again")
}

func TestChangesReachOnlySoFarBack(t *testing.T) {
	table := NewTable(Limits{})
	for range maxChanges/2 + 5 {
		table.Hold(user("ann"))()
	}
	table.View(func(v View) {
		n := 0
		require.False(t, v.Changes(0, func(uint64) { n++ }))
		require.Zero(t, n)
		require.True(t, v.Changes(v.Mark()-maxChanges, func(uint64) { n++ }))
		require.Equal(t, maxChanges, n)
		require.True(t, v.Changes(v.Mark(), func(uint64) { t.Fatal("nothing happened since") }))
	})
	require.Len(t, table.changes, maxChanges)
}

// devices makes a table of n devices, each of a user of its own.
func devices(n int) *Table {
	table := NewTable(Limits{})
	for i := range n {
		table.Apply(Event{User: user(fmt.Sprintf("user-%012d", i)), Device: fmt.Sprintf("device-%016d", i), Online: true, At: start.UnixMilli()}, start)
	}
	return table
}

func heap() int64 {
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc)
}

func TestDevicesTakeBoundedMemory(t *testing.T) {
	const n = 100_000
	before := heap()
	table := devices(n)
	got, kept := table.Stats()
	require.Equal(t, n, got)
	require.Equal(t, n, kept)
	require.Less(t, (heap()-before)/n, int64(256), "bytes of a device")
	runtime.KeepAlive(table)
}

// BenchmarkMillionDevices is what the table takes at its default bound, and a look
// for what is over.
func BenchmarkMillionDevices(b *testing.B) {
	before := heap()
	table := devices(DefaultDevices)
	grown := heap() - before
	for b.Loop() {
		table.Expire(start)
	}
	b.ReportMetric(float64(grown)/DefaultDevices, "B/device")
	b.ReportMetric(float64(grown)/(1<<20), "MiB")
	runtime.KeepAlive(table)
}

func BenchmarkApply(b *testing.B) {
	const n = 100_000
	table := NewTable(Limits{TTL: time.Hour})
	names := make([]mailbox.User, n)
	for i := range names {
		names[i] = user(fmt.Sprintf("user-%06d", i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Apply(Event{User: names[rand.IntN(n)], Device: "phone", Online: i%2 == 0, At: start.UnixMilli() + int64(i)}, start)
	}
}
