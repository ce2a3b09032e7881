package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// due is what the mailboxes must hold: by user and conversation, in order.
type due map[string]map[string][]string

func (d due) add(user string, c, what string) {
	if d[user] == nil {
		d[user] = map[string][]string{}
	}
	d[user][c] = append(d[user][c], what)
}

func line(seq uint64, kind string) string { return fmt.Sprintf("%d %s", seq, kind) }

var kinds = map[logv1.EventKind]mailbox.EventType{
	logv1.EventKind_EVENT_KIND_MESSAGE: mailbox.EventMessage, logv1.EventKind_EVENT_KIND_MENTION: mailbox.EventMention,
	logv1.EventKind_EVENT_KIND_MEMBERSHIP: mailbox.EventMembership, logv1.EventKind_EVENT_KIND_CONTROL: mailbox.EventControl,
}

// group is a group as a naive reader of its records knows it.
type group struct {
	members    map[string]uint32 // slot by user
	highWater  uint32
	generation uint64
	version    uint64
	seq        uint64
	messages   map[[2]string]bool // by sender and client message id
}

// expect reads the whole outbox and follows every group by itself.
func (w *World) expect() (due, error) {
	out := due{}
	groups := map[string]*group{}
	for n := range w.outbox.partitions {
		var epochs records.CommitEpochs
		for _, k := range w.outbox.partitions[n] {
			switch broker.OutboxKind(k) {
			case records.OutboxCommitEpoch:
				e, err := records.DecodeCommitEpoch(k.Value)
				if err != nil {
					return nil, err
				}
				epochs.Mark(e, k.Offset)
				continue
			case records.OutboxAnswer:
				continue
			}
			r := &logv1.OutboxRecord{}
			if err := proto.Unmarshal(k.Value, r); err != nil {
				return nil, err
			}
			if epochs.Stale(r.GetCommitEpoch(), k.Offset) {
				continue
			}
			g := groups[r.GetConversationId()]
			if g == nil {
				g = &group{members: map[string]uint32{}, generation: 1, messages: map[[2]string]bool{}}
				groups[r.GetConversationId()] = g
			}
			if r.GetConversationSeq() <= g.seq {
				continue // once more
			}
			if r.GetConversationSeq() != g.seq+1 {
				return nil, fmt.Errorf("%s: a hole or a reorder: number %d after %d", r.GetConversationId(), r.GetConversationSeq(), g.seq)
			}
			g.seq++
			once := [2]string{r.GetSenderId(), r.GetClientMessageId()}
			if g.messages[once] {
				return nil, fmt.Errorf("%s number %d: client message %s of %s is committed twice", r.GetConversationId(), r.GetConversationSeq(), once[1], once[0])
			}
			g.messages[once] = true
			w.counts.Records++
			audience := r.GetUsers().GetUserIds()
			if r.GetGroup() != nil {
				var err error
				if audience, err = w.follow(g, r); err != nil {
					return nil, fmt.Errorf("%s number %d: %w", r.GetConversationId(), r.GetConversationSeq(), err)
				}
			}
			for _, e := range r.GetEvents() {
				for _, u := range audience {
					if len(e.GetUserIds()) == 0 || slices.Contains(e.GetUserIds(), u) {
						out.add(u, r.GetConversationId(), line(r.GetConversationSeq(), kinds[e.GetKind()].String()))
					}
				}
			}
		}
	}
	return out, nil
}

// follow applies a record's change and returns who it is for.
func (w *World) follow(g *group, r *logv1.OutboxRecord) ([]string, error) {
	before := maps.Clone(g.members)
	m := r.GetMembershipChange()
	if m == nil {
		if a := r.GetGroup(); a.GetMembershipVersion() != g.version || a.GetGeneration() != g.generation {
			return nil, fmt.Errorf("a message froze version %d of generation %d, the group is at %d of %d", a.GetMembershipVersion(), a.GetGeneration(), g.version, g.generation)
		}
		return slices.Sorted(maps.Keys(g.members)), nil
	}
	changes := m.GetChanges()
	if m.GetBlob() != "" {
		b, err := w.blobs.Get(context.Background(), m.GetBlob(), mailbox.Digest(m.GetBlobDigest()), 1<<30)
		if err != nil {
			return nil, err
		}
		var list logv1.SlotChanges
		if err := proto.Unmarshal(b, &list); err != nil {
			return nil, err
		}
		changes = list.GetChanges()
	}
	if g.version++; m.GetMembershipVersion() != g.version {
		return nil, fmt.Errorf("it makes version %d, expected is %d", m.GetMembershipVersion(), g.version)
	}
	renumbering := m.GetKind() == logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER
	if renumbering {
		w.counts.Renumberings++
		g.generation, g.highWater, g.members = g.generation+1, 0, map[string]uint32{}
	}
	if m.GetGeneration() != g.generation {
		return nil, fmt.Errorf("it is of generation %d, the group is at %d", m.GetGeneration(), g.generation)
	}
	left := false
	for _, c := range changes {
		slot, in := g.members[c.GetUserId()]
		switch {
		case c.GetLeaveSeq() != 0:
			if !in || slot != c.GetSlot() {
				return nil, fmt.Errorf("%s leaves slot %d and has %d (%v)", c.GetUserId(), c.GetSlot(), slot, in)
			}
			delete(g.members, c.GetUserId())
			left = true
		case in, c.GetSlot() != g.highWater:
			return nil, fmt.Errorf("%s gets slot %d, the next is %d (is in: %v)", c.GetUserId(), c.GetSlot(), g.highWater, in)
		default:
			g.members[c.GetUserId()] = c.GetSlot()
			g.highWater++
		}
	}
	if renumbering {
		if !slices.Equal(slices.Sorted(maps.Keys(g.members)), slices.Sorted(maps.Keys(before))) {
			return nil, fmt.Errorf("a renumbering changes who is a member: %v to %v", before, g.members)
		}
		return nil, nil // nobody is told
	}
	if left {
		return slices.Sorted(maps.Keys(before)), nil
	}
	return slices.Sorted(maps.Keys(g.members)), nil
}

// check compares every mailbox with what is due.
func (w *World) check() {
	want, err := w.expect()
	if err != nil {
		w.wrong("the outbox: %v", err)
		return
	}
	ctx := context.Background()
	for n := range simUsers {
		u := fmt.Sprintf("user-%d", n)
		page, err := w.server.store.RangeScan(ctx, mailbox.Scan{
			User: mailbox.User{Tenant: simTenant, ID: u}, UpTo: mailbox.Seq(1<<63 - 1), Limits: mailbox.PageLimits{MaxItems: 1 << 20, MaxBytes: 1 << 30},
		})
		if err != nil {
			w.wrong("mailbox of %s: %v", u, err)
			return
		}
		got := map[string][]string{}
		for _, e := range page.Entries {
			got[e.ConversationID] = append(got[e.ConversationID], line(e.ConversationSeq, e.EventType.String()))
			w.counts.Entries++
		}
		if w.keep {
			for _, e := range page.Entries {
				w.note("%s in shard %d has %s: %s number %d %s", u, mailbox.Place(mailbox.User{Tenant: simTenant, ID: u}, w.shards).Shard, e.Seq, e.ConversationID, e.ConversationSeq, e.EventType)
			}
		}
		for c, is := range got {
			if len(want[u][c]) == 0 {
				w.wrong("mailbox of %s, conversation %s: has %v, nothing is due", u, c, is)
			}
		}
		for c, due := range want[u] {
			if !slices.Equal(got[c], due) {
				w.wrong("mailbox of %s, conversation %s: has %v, due is %v", u, c, got[c], due)
			}
		}
	}
}
