package ingest_test

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// oracle is what a naive reader of the log comes to.
type oracle struct {
	end        mailbox.Seq
	boxes      map[string][]mailbox.Entry // by user of the shard, in order
	quarantine int
	duplicates int
	stale      int
}

// oracle reads the whole log, also what was truncated since, record by record.
func (w *world) oracle() oracle {
	o := oracle{boxes: map[string][]mailbox.Entry{}}
	epoch := mailbox.Epoch(1)
	seen := map[mailbox.DispatchID]mailbox.Digest{}
	fence := map[string]uint64{}
	for _, r := range w.log.all() {
		if r.IsEpoch {
			if e, err := records.DecodeEpoch(r.Value); err == nil {
				epoch = max(epoch, e.Epoch)
			}
		}
		seq, err := mailbox.NewSeq(epoch, r.Offset)
		require.NoError(w.t, err)
		o.end = seq
		if r.IsEpoch {
			continue
		}
		d, err := records.DecodeDispatch(r.Value, testShard, r.Timestamp)
		if err != nil {
			o.quarantine++
			continue
		}
		stale := d.FencingEpoch < fence[d.Conversation]
		fence[d.Conversation] = max(fence[d.Conversation], d.FencingEpoch)
		if digest, ok := seen[d.DispatchID]; ok {
			if digest != d.PayloadDigest {
				o.quarantine++
			} else {
				o.duplicates++
			}
			continue
		}
		if stale {
			o.stale++
			continue
		}
		seen[d.DispatchID] = d.PayloadDigest
		for _, u := range w.recipients(d) {
			for _, e := range d.Events {
				if len(e.Users) > 0 && !contains(e.Users, u) {
					continue
				}
				o.boxes[u] = append(o.boxes[u], mailbox.Entry{
					TenantID: d.Tenant, UserID: u, Seq: seq, EventType: e.Type, EventID: mailbox.NewEventID(d.Tenant, d.DispatchID, u, e.Type),
					DispatchID: d.DispatchID, ConversationID: d.Conversation, ConversationSeq: d.ConversationSeq, MessageID: d.MessageID,
					SenderID: d.SenderID, CreatedAt: d.CommittedAt, Payload: e.Payload,
				})
			}
		}
	}
	return o
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// recipients are the users of the shard that a dispatch is for.
func (w *world) recipients(d *records.Dispatch) []string {
	var out []string
	add := func(u string) {
		if mailbox.Place(mailbox.User{Tenant: d.Tenant, ID: u}, shards).Shard == testShard {
			out = append(out, u)
		}
	}
	for _, u := range d.Users {
		add(u)
	}
	if d.Group != nil {
		for _, m := range w.audiences.members(d.GroupVersion()) {
			if m.JoinSeq <= d.ConversationSeq {
				add(m.User)
			}
		}
	}
	return out
}

// check holds the store's mailboxes against the oracle, up to the durable W of
// each lane: invariants I1, I2 and I3, and that W never goes back. It returns
// every mailbox's bytes up to W.
func (w *world) check() map[string][]byte {
	w.t.Helper()
	ctx := w.t.Context()
	st, err := w.pebble.LoadShard(ctx, testShard)
	require.NoError(w.t, err)
	for lane := range st.W {
		require.GreaterOrEqual(w.t, st.W[lane], w.floor[lane], "W of lane %d went back", lane)
		require.Equal(w.t, st.W[lane], st.Floor[lane], "W_floor of lane %d", lane)
		require.LessOrEqual(w.t, st.W[lane], st.F, "W of lane %d is above F", lane)
		w.floor[lane] = st.W[lane]
	}
	o := w.oracle()
	all := map[string][]byte{}
	for u := range w.users {
		user := mailbox.User{Tenant: tenant, ID: u}
		at := mailbox.Place(user, shards)
		upTo := st.W[at.Lane]
		if at.Shard != testShard {
			upTo = mailbox.Seq(1<<63 - 1)
		}
		page, err := w.pebble.RangeScan(ctx, mailbox.Scan{User: user, UpTo: upTo, Limits: mailbox.PageLimits{MaxItems: 1 << 20, MaxBytes: 1 << 30}})
		require.NoError(w.t, err)
		require.True(w.t, page.Complete)
		got, want := []byte{}, []byte{}
		for _, e := range page.Entries {
			got = append(got, w.encode(e)...)
		}
		n := 0
		for _, e := range o.boxes[u] {
			if e.Seq <= upTo {
				want = append(want, w.encode(e)...)
				n++
			}
		}
		if !bytes.Equal(got, want) {
			w.t.Fatalf("mailbox of %s (shard %d lane %d) up to %s has %d entries, want %d:\n got %s\nwant %s", u, at.Shard, at.Lane, upTo, len(page.Entries), n,
				briefly(page.Entries), briefly(o.boxes[u]))
		}
		all[u] = got
	}
	return all
}

func (w *world) encode(e mailbox.Entry) []byte {
	b, err := mailbox.EncodeEntry(e)
	require.NoError(w.t, err)
	return b
}

func briefly(es []mailbox.Entry) string {
	var b bytes.Buffer
	for _, e := range es {
		fmt.Fprintf(&b, " %s/%s/%s", e.Seq, e.EventType, e.MessageID)
	}
	return b.String()
}
