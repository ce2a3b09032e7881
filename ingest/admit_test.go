package ingest_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
)

func TestDuplicatesWriteNothing(t *testing.T) {
	w := newWorld(t, 20)
	r := w.run()
	d := single("ab", 2, w.userIn(3), w.userIn(40))
	w.send(d)
	w.send(d) // in the same batch or the next
	w.send(single("ab", 3, w.userIn(3)))
	r.drained()
	w.send(d)
	r.drained()
	w.check()
	r.crash()
	r = w.run()
	again := single("ab", 2, w.userIn(3), w.userIn(40))
	again.FencingEpoch = 9 // a retry under a newer one is the same dispatch
	w.send(again)
	r.drained()
	w.check()
	require.Equal(t, 3, w.oracle().duplicates)
	require.Empty(t, w.quarantine.reasons())
	rows, err := w.pebble.LookupDispatches(t.Context(), testShard, []mailbox.DispatchID{d.DispatchID})
	require.NoError(t, err)
	require.Equal(t, w.oracle().end.Offset(), rows[0].LastOffset, "the last sight is remembered")
}

// lockedBuffer takes what a shard logs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAnotherContentUnderTheSameIDIsQuarantined(t *testing.T) {
	w := newWorld(t, 21)
	var said lockedBuffer
	w.logger = slog.New(slog.NewTextHandler(&said, nil))
	r := w.run()
	d := single("ab", 2, w.userIn(3))
	w.send(d)
	r.drained()
	first := w.check()
	other := single("ab", 2, w.userIn(3), w.userIn(9))
	w.send(other)
	w.log.append(committedAt, false, []byte("rubbish"))
	w.send(single("ab", 3, w.userIn(3)))
	r.drained()
	require.Equal(t, []records.Reason{records.DigestConflict, records.Undecodable}, w.quarantine.reasons())
	require.Equal(t, 2, strings.Count(said.String(), "ALERT: dispatch record put into quarantine"), "operators look for ALERT")
	require.Equal(t, 2, w.oracle().quarantine)
	after := w.check()
	require.Equal(t, first[w.userIn(3)], after[w.userIn(3)][:len(first[w.userIn(3)])])
	require.Empty(t, after[w.userIn(9)])
}

// TestStaleWriterIsDroppedTheSameOnEveryReplay sends the records of an older
// writer before, between and after those of a newer one, and replays all of it
// with the newer epoch known: what was valid at its place stays valid.
func TestStaleWriterIsDroppedTheSameOnEveryReplay(t *testing.T) {
	w := newWorld(t, 22)
	a, b := w.userIn(3), w.userIn(7)
	at := func(seq, epoch uint64) *records.Dispatch {
		d := single("ab", seq, a, b)
		d.FencingEpoch = epoch
		return d
	}
	stuck := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(7)})
	r := w.run()
	w.send(at(2, 1))
	w.send(at(3, 5))
	w.send(at(4, 4)) // stale
	w.send(at(5, 5))
	w.send(at(6, 7))
	w.send(at(7, 6)) // stale
	w.send(at(8, 7))
	require.Equal(t, 2, w.oracle().stale)
	r.passed(3, w.oracle().end)
	await(t, "the fault", stuck.Hit())
	visible := w.check()
	for range 3 {
		r.crash() // W of lane 7 is still where it was: all of it is read again
		stuck = w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(7)})
		r = w.run()
		r.passed(3, w.oracle().end)
		require.Equal(t, visible[a], w.check()[a])
	}
	stuck.Heal()
	r.drained()
	w.check()
	w.send(at(9, 6)) // stale, against what is durable only
	r.drained()
	w.check()
	require.Equal(t, 3, w.oracle().stale)
}

func TestUnreadableAudienceHoldsW(t *testing.T) {
	w := newWorld(t, 23)
	v := w.version("g", 1, append(w.usersIn(3, 5), w.usersIn(2, 6)...)...)
	r := w.run()
	w.audiences.readable(false)
	w.send(single("ab", 2, w.userIn(5)))
	held := w.send(w.group("g", 3, v))
	w.send(single("ab", 4, w.userIn(5), w.userIn(50)))
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		r.passed(lane, mailbox.Seq(1<<48|held-1))
	}
	w.until("the later record is appended, invisible", func() bool { return w.laid(w.userIn(50)) == 1 })
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		require.Equal(t, mailbox.Seq(1<<48|held-1), r.W(lane), "lane %d must not pass a dispatch whose audience is unknown", lane)
	}
	w.check()
	w.audiences.readable(true)
	r.drained()
	w.check()
}

// laid counts the entries of a user, visible or not.
func (w *world) laid(user string) int {
	p, err := w.pebble.RangeScan(context.Background(), mailbox.Scan{User: mailbox.User{Tenant: tenant, ID: user}, UpTo: 1<<63 - 1, Limits: mailbox.PageLimits{MaxItems: 1 << 20, MaxBytes: 1 << 30}})
	require.NoError(w.t, err)
	return len(p.Entries)
}

// TestUnreadableAudienceOverARestart: the obligation began unexpanded; the next
// owner reads its audience at once and must finish what was begun.
func TestUnreadableAudienceOverARestart(t *testing.T) {
	for _, readable := range []bool{true, false} {
		w := newWorld(t, 24)
		v := w.version("g", 1, append(w.usersIn(3, 5), w.usersIn(2, 6)...)...)
		r := w.run()
		w.audiences.readable(false)
		held := w.send(w.group("g", 3, v))
		w.send(single("ab", 4, w.userIn(5), w.userIn(50)))
		w.until("the later record is appended, invisible", func() bool { return w.laid(w.userIn(50)) == 1 })
		r.crash()
		w.audiences.readable(readable)
		r = w.run()
		if !readable {
			w.until("the record is read again", func() bool { return r.Status(false).Unfinished > 0 })
			require.Equal(t, mailbox.Seq(1<<48|held-1), r.W(50))
			w.audiences.readable(true)
		}
		r.drained()
		w.check()
		r.stop()
	}
}

func TestGroupBoundaryFilter(t *testing.T) {
	w := newWorld(t, 25)
	old, late := w.userIn(3), w.usersIn(2, 3)[1]
	v := w.versionOf("g", 2, []membership.Member{{Slot: 1, User: old, JoinSeq: 1}, {Slot: 2, User: late, JoinSeq: 5}})
	r := w.run()
	w.send(w.group("g", 4, v)) // committed before the join, for whatever reason dispatched to the later version
	w.send(w.group("g", 5, v))
	w.send(w.group("g", 6, v))
	r.drained()
	w.check()
	require.Equal(t, 3, w.laid(old))
	require.Equal(t, 2, w.laid(late))
}

func TestNamedUsersGetTheirEvents(t *testing.T) {
	w := newWorld(t, 26)
	us := w.usersIn(3, 8)
	v := w.version("g", 1, us...)
	r := w.run()
	d := w.group("g", 2, v)
	d.Events = []records.Event{
		{Type: mailbox.EventMessage},
		{Type: mailbox.EventMention, Users: []string{us[1], "stranger", us[1]}, Payload: []byte("m")},
		{Type: mailbox.EventMembership, Users: us[2:]},
		{Type: mailbox.EventControl, Payload: []byte("c")},
	}
	w.users["stranger"] = true
	w.send(d)
	only := w.group("g", 3, v)
	only.Events = []records.Event{{Type: mailbox.EventMention, Users: us[:1]}}
	w.send(only)
	r.drained()
	w.check()
	require.Equal(t, []int{3, 3, 3}, []int{w.laid(us[0]), w.laid(us[1]), w.laid(us[2])})
}

// TestNewerOwnerInTheLogEndsThisOne: a fenced owner meets the marker in its own
// input and forms no seq after it.
func TestNewerOwnerInTheLogEndsThisOne(t *testing.T) {
	w := newWorld(t, 27)
	r := w.run()
	w.send(single("ab", 2, w.userIn(3)))
	r.drained()
	w.log.append(committedAt, true, records.Epoch{Epoch: 2, Token: mailbox.Token{9}}.Encode())
	w.send(single("ab", 3, w.userIn(3)))
	require.ErrorIs(t, r.ended(), mailbox.ErrNotOwner)
	require.Equal(t, 1, w.laid(w.userIn(3)), "nothing after the marker is written by the old owner")
	r.crash()
	r = w.run()
	require.EqualValues(t, 3, r.Ownership().Epoch)
	r.drained()
	w.check()
}

func TestOlderMarkersChangeNothing(t *testing.T) {
	w := newWorld(t, 28)
	r := w.run()
	r.crash()
	r = w.run() // epoch 2
	w.log.append(committedAt, true, records.Epoch{Epoch: 1, Token: mailbox.Token{9}}.Encode())
	w.send(single("ab", 2, w.userIn(3)))
	w.log.append(committedAt, true, records.Epoch{Epoch: 2, Token: mailbox.Token{8}}.Encode())
	w.send(single("ab", 3, w.userIn(3)))
	r.drained()
	w.check()
}

// TestFencedOwnerWritesNothingThatCounts: the store has a new owner while the
// old one still has work under way (I4).
func TestFencedOwnerWritesNothingThatCounts(t *testing.T) {
	w := newWorld(t, 29)
	w.options.Lease = 200 * 1e6 // 200 ms
	r := w.run()
	hang := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Lane(3)})
	renew := w.store.Inject(faulty.Fault{Op: faulty.Renew, Mode: faulty.Fail})
	w.send(single("ab", 2, w.userIn(3)))
	await(t, "append", hang.Hit())
	await(t, "renewal", renew.Hit())
	var own mailbox.Ownership
	w.until("the lease ends", func() bool {
		var err error
		own, err = w.pebble.Fence(context.Background(), mailbox.FenceRequest{Shard: testShard, LogEpoch: 1, Token: mailbox.Token{7}, Owner: "other", Lease: 1e9})
		return err == nil
	})
	require.EqualValues(t, 2, own.Epoch)
	before, err := w.pebble.LoadShard(t.Context(), testShard)
	require.NoError(t, err)
	hang.Heal()
	require.ErrorIs(t, r.ended(), mailbox.ErrNotOwner)
	after, err := w.pebble.LoadShard(t.Context(), testShard)
	require.NoError(t, err)
	require.Equal(t, before, after, "neither frontier nor W")
	rows, err := w.pebble.LookupDispatches(t.Context(), testShard, []mailbox.DispatchID{single("ab", 2).DispatchID})
	require.NoError(t, err)
	require.False(t, rows[0].Complete(), "nor a mark")
	require.NoError(t, w.pebble.ReleaseLease(t.Context(), own))
	w.options.Lease = 0
	r = w.run()
	r.drained()
	w.check()
}

func TestLogThatNoLongerStartsWhereReadingMust(t *testing.T) {
	w := newWorld(t, 30)
	r := w.run()
	w.send(single("ab", 2, w.userIn(3)))
	r.drained()
	stuck := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(3)})
	lost := w.send(single("ab", 3, w.userIn(3)))
	w.send(single("ab", 4, w.userIn(9)))
	r.passed(9, w.oracle().end)
	await(t, "the fault", stuck.Hit())
	r.crash()
	w.log.truncate(lost + 1)
	_, err := ingest.Open(t.Context(), w.config())
	require.ErrorIs(t, err, ingest.ErrLogTruncated)
	require.ErrorContains(t, err, "offset 3")
	require.ErrorContains(t, err, "from 2 on")
	w.log.truncate(lost) // exactly what is needed
	r = w.run()
	r.drained()
	w.check()
}

// TestLogTruncatedBelowTheFirstWatermark: W of a lane is still 0 because the
// very first record of the log is unfinished there.
func TestLogTruncatedBelowTheFirstWatermark(t *testing.T) {
	w := newWorld(t, 31)
	w.send(single("ab", 2, w.userIn(3))) // offset 0, before the first owner's marker
	w.send(single("ab", 3, w.userIn(9)))
	stuck := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(3)})
	r := w.run()
	r.passed(9, w.oracle().end)
	await(t, "the fault", stuck.Hit())
	r.crash()
	w.log.truncate(1)
	_, err := ingest.Open(t.Context(), w.config())
	require.ErrorIs(t, err, ingest.ErrLogTruncated)
	w.log.truncate(0)
	r = w.run()
	r.drained()
	w.check()
}

func TestLogThatLostItsTail(t *testing.T) {
	w := newWorld(t, 32)
	r := w.run()
	w.send(single("ab", 2, w.userIn(3)))
	w.send(single("ab", 3, w.userIn(3)))
	r.drained()
	r.stop()
	w.log.cut(2)
	_, err := ingest.Open(t.Context(), w.config())
	require.ErrorIs(t, err, ingest.ErrLogTruncated)
	require.ErrorContains(t, err, "ends at offset 2")
	require.ErrorContains(t, err, "frontier 1:2")
	st, err := w.pebble.LoadShard(t.Context(), testShard)
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Epoch, "nobody becomes the owner of a log that lost data")
}

func TestLogTruncatedUnderARunningShardEndsIt(t *testing.T) {
	w := newWorld(t, 33)
	r := w.run()
	w.send(single("ab", 2, w.userIn(3)))
	r.drained()
	w.log.truncate(100)
	w.log.append(committedAt, false, nil)
	require.ErrorIs(t, r.ended(), errOutOfRange)
}
