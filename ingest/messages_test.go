package ingest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
)

// userIn makes up a user of the shard in a lane.
func (w *world) userIn(lane mailbox.Lane) string { return w.usersIn(1, lane)[0] }

var madeUp sync.Map // of lane: []string; users by lane are searched for once

// usersIn makes up n users of the shard in a lane, always the same.
func (w *world) usersIn(n int, lane mailbox.Lane) []string {
	list, _ := madeUp.Load(lane)
	have, _ := list.([]string)
	next := 0
	if len(have) > 0 {
		_, err := fmt.Sscanf(have[len(have)-1], "u%d", &next)
		require.NoError(w.t, err)
		next++
	}
	for ; len(have) < n; next++ {
		u := fmt.Sprintf("u%d", next)
		if at := mailbox.Place(mailbox.User{Tenant: tenant, ID: u}, shards); at.Shard == testShard && at.Lane == lane {
			have = append(have[:len(have):len(have)], u)
		}
	}
	madeUp.Store(lane, have)
	return have[:n:n] // to append to it must not write into the list
}

// committedAt is a time of day that no test outlives.
var committedAt = time.Now().Add(-time.Minute).UnixMilli()

// message is the common part of a dispatch.
func message(conv string, seq uint64) *records.Dispatch {
	c := mailbox.Conversation{Tenant: tenant, ID: conv}
	id := fmt.Sprintf("%s-m%d", conv, seq)
	return &records.Dispatch{
		DispatchID: mailbox.NewDispatchID(c, seq, id, 0), Shard: testShard, Tenant: tenant, Conversation: conv, MessageID: id,
		ConversationSeq: seq, SenderID: "sender", CommittedAt: committedAt, FencingEpoch: 1,
		Events: []records.Event{{Type: mailbox.EventMessage}},
	}
}

// single is a message of a single chat.
func single(conv string, seq uint64, users ...string) *records.Dispatch {
	d := message(conv, seq)
	d.Kind, d.Users = logv1.ConversationKind_CONVERSATION_KIND_SINGLE, users
	return d
}

// group is a message to a frozen version of a group.
func (w *world) group(conv string, seq uint64, v mailbox.GroupVersion) *records.Dispatch {
	d := message(conv, seq)
	d.Kind = logv1.ConversationKind_CONVERSATION_KIND_GROUP
	d.Group = &records.GroupAudience{
		GroupID: v.ID, Generation: v.Generation, Version: v.Version, ManifestDigest: digestOf(v),
		SlotHighWater: 1 << 20, MemberCount: uint32(len(w.audiences.members(v))),
	}
	return d
}

// send appends a dispatch to the log and returns its offset.
func (w *world) send(d *records.Dispatch) int64 {
	w.name(d)
	return w.log.append(d.CommittedAt, false, d.Encode())
}

// sendAtOnce appends dispatches so that no reader sees one without the others.
func (w *world) sendAtOnce(ds ...*records.Dispatch) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	for _, d := range ds {
		w.name(d)
		w.log.appendLocked(d.CommittedAt, false, d.Encode())
	}
}

// name completes a dispatch and remembers who is named in it.
func (w *world) name(d *records.Dispatch) {
	d.PayloadDigest = d.ContentDigest()
	for _, u := range d.Users {
		w.users[u] = true
	}
	if d.Group != nil {
		for _, m := range w.audiences.members(d.GroupVersion()) {
			w.users[m.User] = true
		}
	}
}

// version makes a version of a group out of users who joined at conversation_seq
// 1, in slot order.
func (w *world) version(id string, n uint64, users ...string) mailbox.GroupVersion {
	var ms []membership.Member
	for i, u := range users {
		ms = append(ms, membership.Member{Slot: uint32(i + 1), User: u, JoinSeq: 1})
	}
	return w.versionOf(id, n, ms)
}

func (w *world) versionOf(id string, n uint64, ms []membership.Member) mailbox.GroupVersion {
	v := mailbox.GroupVersion{Group: mailbox.Group{Tenant: tenant, ID: id}, Generation: 1, Version: n}
	w.audiences.mu.Lock()
	defer w.audiences.mu.Unlock()
	w.audiences.versions[v] = ms
	return v
}

func digestOf(v mailbox.GroupVersion) mailbox.Digest {
	return mailbox.Sum(fmt.Appendf(nil, "%v", v))
}

// awaitingItsActivity runs a shard with a large dispatch of one lane, which is
// admitted and waits for its activity to append a chunk.
func awaitingItsActivity(t *testing.T, seed uint64, claim time.Duration) (*world, *running, mailbox.ChunkRef) {
	t.Helper()
	const lane = 13
	w := newWorld(t, seed)
	w.engine = idleEngine{}
	w.options.WorkflowMinEntries, w.options.ClaimTimeout, w.options.Turn = 20, claim, time.Hour
	v := w.version("g", 1, w.usersIn(20, lane)...)
	r := w.run()
	d := w.group("g", 2, v)
	ref := chunkAt(d, w.send(d), lane)
	w.until("it is admitted", func() bool { return r.Status(false).Unfinished == 1 })
	return w, r, ref
}
