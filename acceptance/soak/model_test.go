package soak_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// act is one answered request: what it asked for and the place that it got.
type act struct {
	seq      uint64 // conversation_seq
	kind     actKind
	users    []string // joiners, leavers, or the recipients of a single chat
	mentions []string // of a message
	message  string   // message_id; "" for a change
	changed  uint32
}

type actKind int

const (
	single actKind = iota
	message
	join
	leave
)

// model is the answers by conversation. It never looks at the node.
type model struct {
	mu    sync.Mutex
	convs map[string][]act
	empty map[string]int // changes that changed nothing
}

func newModel() *model { return &model{convs: map[string][]act{}, empty: map[string]int{}} }

// note takes an answer.
func (m *model) note(conv string, a act) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.seq == 0 {
		m.empty[conv]++
		return
	}
	m.convs[conv] = append(m.convs[conv], a)
}

// item is an entry as the model expects it.
type item struct {
	seq     uint64
	kind    logv1.EventKind
	message string
}

// mailboxes returns what each user's mailbox must hold, by conversation in order.
// It fails when the answers contradict one another.
func (m *model) mailboxes() (map[string]map[string][]item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	boxes := map[string]map[string][]item{}
	give := func(user, conv string, i item) {
		if boxes[user] == nil {
			boxes[user] = map[string][]item{}
		}
		boxes[user][conv] = append(boxes[user][conv], i)
	}
	for conv, acts := range m.convs {
		slices.SortFunc(acts, func(a, b act) int { return cmp.Compare(a.seq, b.seq) })
		members := map[string]bool{}
		for i, a := range acts {
			if a.seq != uint64(i+1) {
				return nil, fmt.Errorf("conversation %s: place %d is taken by seq %d: a hole, or one seq for two requests", conv, i+1, a.seq)
			}
			changed := uint32(0)
			switch a.kind {
			case single:
				for _, u := range a.users {
					give(u, conv, item{a.seq, logv1.EventKind_EVENT_KIND_MESSAGE, a.message})
				}
			case message:
				for u := range members {
					give(u, conv, item{a.seq, logv1.EventKind_EVENT_KIND_MESSAGE, a.message})
					if slices.Contains(a.mentions, u) {
						give(u, conv, item{a.seq, logv1.EventKind_EVENT_KIND_MENTION, a.message})
					}
				}
			case join:
				for _, u := range a.users {
					if !members[u] {
						members[u] = true
						changed++
					}
				}
				for u := range members {
					give(u, conv, item{a.seq, logv1.EventKind_EVENT_KIND_MEMBERSHIP, ""})
				}
			case leave:
				for u := range members {
					give(u, conv, item{a.seq, logv1.EventKind_EVENT_KIND_MEMBERSHIP, ""})
				}
				for _, u := range a.users {
					if members[u] {
						delete(members, u)
						changed++
					}
				}
			}
			if a.changed != changed {
				return nil, fmt.Errorf("conversation %s seq %d: the answer says %d users changed, the model %d", conv, a.seq, a.changed, changed)
			}
		}
	}
	return boxes, nil
}

// differ compares a mailbox with what the model expects.
func differ(user string, got []*lanewayv1.Entry, want map[string][]item) error {
	if err := ordered(user, got); err != nil {
		return err
	}
	have := map[string][]item{}
	for _, e := range got {
		i := item{e.ConversationSeq, e.Kind, e.MessageId}
		if e.Kind == logv1.EventKind_EVENT_KIND_MEMBERSHIP {
			i.message = ""
		}
		have[e.ConversationId] = append(have[e.ConversationId], i)
	}
	for conv, items := range have {
		if want[conv] == nil {
			return fmt.Errorf("mailbox of %s: %d entries of conversation %s, which never had the user: %+v", user, len(items), conv, items[0])
		}
	}
	for conv, items := range want {
		for i := range max(len(items), len(have[conv])) {
			switch h := have[conv]; {
			case i >= len(h):
				return fmt.Errorf("mailbox of %s, conversation %s: entry %d of %d is missing: %+v", user, conv, i+1, len(items), items[i])
			case i >= len(items):
				return fmt.Errorf("mailbox of %s, conversation %s: entry %d is one too many: %+v", user, conv, i+1, h[i])
			case h[i] != items[i]:
				return fmt.Errorf("mailbox of %s, conversation %s: entry %d is %+v, want %+v", user, conv, i+1, h[i], items[i])
			}
		}
	}
	return nil
}

// ordered checks what holds for any mailbox: seqs ascend, groups are in type
// order, no event comes twice.
func ordered(user string, got []*lanewayv1.Entry) error {
	ids := make(map[string]bool, len(got))
	for i, e := range got {
		if ids[string(e.EventId)] {
			return fmt.Errorf("mailbox of %s: entry %d repeats an event: %v", user, i+1, e)
		}
		ids[string(e.EventId)] = true
		if i > 0 && (e.Seq < got[i-1].Seq || e.Seq == got[i-1].Seq && e.Kind <= got[i-1].Kind) {
			return fmt.Errorf("mailbox of %s: entry %d is out of order: %v after %v", user, i+1, e, got[i-1])
		}
	}
	return nil
}

func total(boxes map[string][]item) int {
	n := 0
	for _, items := range boxes {
		n += len(items)
	}
	return n
}
