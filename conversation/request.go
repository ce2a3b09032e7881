package conversation

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// MaxRecipients is the most users of a SINGLE conversation.
const MaxRecipients = 16

// CommitRequest is a message to be committed.
type CommitRequest struct {
	Conversation mailbox.Conversation
	Kind         logv1.ConversationKind
	Sender       string
	// ClientMessageID makes the commit idempotent for (conversation, sender).
	ClientMessageID string
	// MessageID may be empty: then it is derived from the conversation and its
	// seq.
	MessageID string
	// Recipients of a SINGLE conversation: 1 to 16 users, named by every commit;
	// empty means those of the commit before. Empty for GROUP.
	Recipients []string
	// Events of kinds MESSAGE, MENTION and CONTROL; empty means one MESSAGE to
	// everybody.
	Events []*logv1.Event
	Body   []byte
	// FencingEpoch of the writer; 0 means the conversation's current one. A
	// larger one takes the conversation over, a smaller one is refused.
	FencingEpoch uint64
}

// CommitResult is the answer to a commit, the same for every repetition of it.
type CommitResult struct {
	MessageID       string
	ConversationSeq uint64
	CommittedAt     int64 // Unix ms
	// Duplicate: an earlier request with the same client_message_id did it.
	Duplicate bool
}

// MembershipRequest is a join, leave or import of users: one change.
type MembershipRequest struct {
	Group mailbox.Group
	// Users to join or leave, each once. Those who are members already (joins)
	// or are none (leaves) are fine and not changed.
	Users []string
	// Actor is the sender of the MEMBERSHIP event.
	Actor           string
	ClientMessageID string
	FencingEpoch    uint64 // as in CommitRequest
	// Progress, if set, is called as the stages of a large change advance.
	Progress func(stage Stage, done, total int)
}

// Stage is a part of the work of a membership change.
type Stage string

// The stages, in order. An attempt that met another writer begins again.
const (
	StageSlots   Stage = "reading slots"
	StagePlan    Stage = "planning the version"
	StageWrite   Stage = "writing the version"
	StagePublish Stage = "publishing"
)

// MembershipResult is the answer to a membership request.
type MembershipResult struct {
	Generation uint64
	Version    uint64
	// ConversationSeq of the change; 0 when nothing changed.
	ConversationSeq uint64
	CommittedAt     int64 // Unix ms; 0 when nothing changed
	MemberCount     uint32
	// Changed is how many users joined or left; 0: nothing was dispatched.
	Changed   uint32
	Duplicate bool
}

// GroupInfo is a group's current state.
type GroupInfo struct {
	mailbox.GroupVersion
	ConversationSeq uint64
	MemberCount     uint32
	SlotHighWater   uint32
	TargetShards    []uint32
	ManifestDigest  mailbox.Digest
	// RenumberingDue: the slots run far ahead of the members.
	RenumberingDue bool
	// Closing is set while the group is closed to writes.
	Closing *Closing
}

// Limits bounds requests and memory; zero values take the defaults.
type Limits struct {
	BodyBytes    int // 64 KiB
	Events       int // of one commit: 16
	NamedUsers   int // of all events of one commit: 2,000
	ChangeUsers  int // of one membership request: 1,000,000
	GroupMembers int // 1,000,000
	// InlineChangeBytes is the largest change that its record holds itself;
	// larger ones go to a blob: 64 KiB.
	InlineChangeBytes int
	// CacheBytes bounds heads and bitmaps kept in memory: 64 MiB.
	CacheBytes int
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		p *int
		n int
	}{
		{&l.BodyBytes, 64 << 10},
		{&l.Events, 16},
		{&l.NamedUsers, 2_000},
		{&l.ChangeUsers, 1_000_000},
		{&l.GroupMembers, 1_000_000},
		{&l.InlineChangeBytes, 64 << 10},
		{&l.CacheBytes, 64 << 20},
	} {
		if *f.p <= 0 {
			*f.p = f.n
		}
	}
	return l
}

// messageKey is what makes a request idempotent.
type messageKey struct {
	sender, clientMessageID string
	digest                  mailbox.Digest
}

func checkAll(checks ...error) error {
	for _, err := range checks {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidRequest, err)
		}
	}
	return nil
}

func (r *CommitRequest) check(l Limits) error {
	if err := checkAll(r.Conversation.Check(), mailbox.CheckID("sender_id", r.Sender), mailbox.CheckID("client_message_id", r.ClientMessageID)); err != nil {
		return err
	}
	if r.MessageID != "" {
		if err := checkAll(mailbox.CheckID("message_id", r.MessageID)); err != nil {
			return err
		}
	}
	switch r.Kind {
	case logv1.ConversationKind_CONVERSATION_KIND_SINGLE:
		if err := checkRecipients(r.Recipients); err != nil {
			return err
		}
	case logv1.ConversationKind_CONVERSATION_KIND_GROUP:
		if len(r.Recipients) > 0 {
			return invalid("recipient_ids of a GROUP conversation must be empty: its members get the message")
		}
	default:
		return invalid("conversation_kind %d: want SINGLE or GROUP", r.Kind)
	}
	if len(r.Body) > l.BodyBytes {
		return fmt.Errorf("%w: the body has %d bytes, at most %d are allowed", ErrTooLarge, len(r.Body), l.BodyBytes)
	}
	return checkEvents(r.Events, l)
}

func checkRecipients(users []string) error {
	if len(users) > MaxRecipients {
		return invalid("%d recipient_ids: a SINGLE conversation has 1 to %d users; use a GROUP", len(users), MaxRecipients)
	}
	return checkUsers(users)
}

func checkEvents(events []*logv1.Event, l Limits) error {
	if len(events) > l.Events {
		return fmt.Errorf("%w: %d events, at most %d are allowed", ErrTooLarge, len(events), l.Events)
	}
	named := 0
	for i, e := range events {
		switch e.GetKind() {
		case logv1.EventKind_EVENT_KIND_MESSAGE, logv1.EventKind_EVENT_KIND_MENTION, logv1.EventKind_EVENT_KIND_CONTROL:
		case logv1.EventKind_EVENT_KIND_MEMBERSHIP:
			return invalid("event %d: MEMBERSHIP events are made by joins, leaves and imports only", i+1)
		default:
			return invalid("event %d: kind %d: want MESSAGE, MENTION or CONTROL", i+1, e.GetKind())
		}
		if n := len(e.GetPayload()); n > mailbox.MaxPayloadBytes {
			return fmt.Errorf("%w: the payload of event %d has %d bytes, at most %d are allowed", ErrTooLarge, i+1, n, mailbox.MaxPayloadBytes)
		}
		if n := len(e.GetUserIds()); n > records.MaxNamedUsers {
			return fmt.Errorf("%w: event %d names %d users, at most %d are allowed; name none to reach everybody in the conversation", ErrTooLarge, i+1, n, records.MaxNamedUsers)
		}
		if named += len(e.GetUserIds()); named > l.NamedUsers {
			return fmt.Errorf("%w: more than %d users are named by events", ErrTooLarge, l.NamedUsers)
		}
		if err := checkUsers(e.GetUserIds()); err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	return nil
}

// checkUsers refuses invalid and repeated users, by position.
func checkUsers(users []string) error {
	seen := make(map[string]int, len(users))
	var bad UsersError
	for i, u := range users {
		var reason string
		if err := mailbox.CheckID("user_id", u); err != nil {
			reason = err.Error()
		} else if first, twice := seen[u]; twice {
			reason = fmt.Sprintf("user %q is at position %d already", u, first)
		} else {
			seen[u] = i + 1
			continue
		}
		if bad.Total++; bad.Total <= maxProblems {
			bad.Problems = append(bad.Problems, UserProblem{i + 1, u, reason})
		}
	}
	if bad.Total > 0 {
		return &bad
	}
	return nil
}

func (r *MembershipRequest) check(l Limits) error {
	if err := checkAll(r.Group.Check(), mailbox.CheckID("actor_id", r.Actor), mailbox.CheckID("client_message_id", r.ClientMessageID)); err != nil {
		return err
	}
	switch n := len(r.Users); {
	case n == 0:
		return invalid("no users")
	case n > l.ChangeUsers:
		return fmt.Errorf("%w: %d users in one change, at most %d are allowed", ErrTooLarge, n, l.ChangeUsers)
	}
	return checkUsers(r.Users)
}

func (r *MembershipRequest) progress(stage Stage, done int) {
	if r.Progress != nil {
		r.Progress(stage, done, len(r.Users))
	}
}

// digest tells a repetition from another request; the fencing epoch is not part
// of it, since a retry may come under a newer one.
func (r *CommitRequest) key() messageKey {
	b := mailbox.AppendLP(nil, "laneway/commit/v1")
	b = append(b, byte(r.Kind))
	b = mailbox.AppendLP(b, r.MessageID)
	b = appendList(b, r.Recipients)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Events)))
	for _, e := range r.Events {
		b = append(b, byte(e.GetKind()))
		b = appendList(b, e.GetUserIds())
		b = mailbox.AppendLP(b, e.GetPayload())
	}
	b = mailbox.AppendLP(b, r.Body)
	return messageKey{r.Sender, r.ClientMessageID, mailbox.Sum(b)}
}

func (r *MembershipRequest) key(kind logv1.MembershipKind) messageKey {
	b := mailbox.AppendLP(nil, "laneway/membership/v1")
	b = append(b, byte(kind))
	return messageKey{r.Actor, r.ClientMessageID, mailbox.Sum(appendList(b, r.Users))}
}

func appendList(b []byte, list []string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, s := range list {
		b = mailbox.AppendLP(b, s)
	}
	return b
}

// deriveMessageID makes the id of a message whose writer gave none.
func deriveMessageID(c mailbox.Conversation, seq uint64) string {
	b := mailbox.AppendLP(nil, "laneway/message/v1")
	b = mailbox.AppendLP(mailbox.AppendLP(b, c.Tenant), c.ID)
	d := mailbox.Sum(binary.LittleEndian.AppendUint64(b, seq))
	return hex.EncodeToString(d[:16])
}
