package conversation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Publisher produces to the outbox topic. Publish returns nil when the broker
// has acknowledged the record on all in-sync replicas; after an error the record
// may or may not be there.
type Publisher interface {
	Publish(ctx context.Context, partition int32, record []byte) error
}

// Config is what a Service works with.
type Config struct {
	Heads     mailbox.HeadStore
	Members   mailbox.MembershipStore
	Blobs     membership.Blobs
	Publisher Publisher
	// ShardCount and OutboxPartitions are the deployment's immutable numbers.
	ShardCount       int
	OutboxPartitions int
	// EarlierPartitions are the partitions of topics that were the outbox before, in
	// order: in Outbox and in the commit state they come before the present ones, and
	// a conversation's records there are older (design 5.2).
	EarlierPartitions []int
	// State and Outbox make good what a store may lose; both are nil for one that
	// loses nothing.
	State  CommitStore
	Outbox Outbox
	Quota  Quota // nil: there is none
	// RenumberingDue, if set, is called when a change brings a group to where it
	// should be renumbered.
	RenumberingDue func()
	Now            func() time.Time // nil: time.Now
	Logger         *slog.Logger     // nil: slog.Default
	Limits         Limits
}

const (
	// maxAttempts bounds how often a request meets another process's write.
	maxAttempts = 64
	// finishTimeout bounds the work after the decision; it does not end with the
	// caller, so that a client that hangs up leaves no pending record behind.
	finishTimeout = 15 * time.Second
	// maxClockLead is how far committed_at may run ahead of the clock to stay
	// monotone. After a clock that was wrong by more, it steps back: a record
	// stamped an hour ahead would be quarantined (design 3).
	maxClockLead = 30 * time.Minute
)

// Service carries out commits and membership changes. Safe for concurrent use,
// by any number of processes on the same store.
type Service struct {
	cfg    Config
	limits Limits
	rows   membership.Rows
	states *states

	// incarnation is the store's, "" for one that loses nothing: epoch stays 0 then
	// and the gate is always open.
	incarnation string
	gate        atomic.Pointer[error] // why commits are closed; nil: open
	epoch       atomic.Uint64         // the commit epoch that records carry
	decided     atomic.Uint64         // how much this process has decided
	beat        beat                  // of the one goroutine that calls Beat
}

// New returns a service. Run Recover before serving, and then Sweep: it finishes
// what a crash left pending.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Heads == nil || cfg.Members == nil || cfg.Blobs == nil || cfg.Publisher == nil:
		return nil, errors.New("conversation: Heads, Members, Blobs and Publisher are required")
	case cfg.ShardCount < 1 || cfg.OutboxPartitions < 1:
		return nil, fmt.Errorf("conversation: shard count %d and outbox partitions %d must be at least 1", cfg.ShardCount, cfg.OutboxPartitions)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	l := cfg.Limits.withDefaults()
	s := &Service{cfg: cfg, limits: l, rows: membership.Rows{Store: cfg.Members, Blobs: cfg.Blobs}, states: newStates(l.CacheBytes)}
	if cfg.State != nil {
		s.incarnation = cfg.State.Incarnation()
	}
	if s.lossy() {
		if cfg.Outbox == nil {
			return nil, errors.New("conversation: a store that may lose its last writes needs Outbox")
		}
		s.shut(errNotRecovered)
	}
	return s, nil
}

// plan is what a request wants to become of the head.
type plan struct {
	next head // with the pending record and its row
	// version is what a membership change makes; nil for commits.
	version *membership.Next
	// unchanged: nothing is to be done; the row is the answer.
	unchanged *statev1.CommittedMessage
	// cost is what a quota counts it for: the users of its audience. must: it is
	// never refused for that.
	cost int
	must bool
	// unsure: the compare-and-set may have been applied.
	unsure bool
}

// run takes a request through the steps of design 9.1. compute is called with
// the current head, once for every attempt.
func (s *Service) run(ctx context.Context, c mailbox.Conversation, k messageKey, compute func(*state) (*plan, error)) (row *statev1.CommittedMessage, duplicate bool, err error) {
	if err := s.Closed(); err != nil {
		return nil, false, err
	}
	defer func() { s.notice(err) }()
	st, err := s.turn(ctx, c)
	if err != nil {
		return nil, false, err
	}
	var b bill
	defer b.settle()
	defer func() {
		if st != nil {
			s.states.release(st)
		}
	}()
	staleAt := uint64(0)
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return nil, false, err
		}
		remembered := st.known
		if err := s.load(ctx, st); err != nil {
			return nil, false, err
		}
		var unfinished error
		if st.head.pending != nil {
			unfinished = s.finish(ctx, st, nil)
		}
		// Whatever was answered once is answered again, also while the outbox is
		// down.
		switch row, err := s.lookUp(ctx, c, k); {
		case err != nil:
			return nil, false, err
		case row != nil && row.GetConversationSeq() > 0:
			return row, true, nil
		case row != nil:
			// "Nothing changed": the one who wrote it may not have got to sync it.
			return row, true, s.settle(ctx, st, k, row)
		case unfinished != nil:
			return nil, false, unfinished
		case !st.known:
			continue // finishing met another process
		}
		p, err := compute(st)
		if remembered && (err != nil || p.unchanged != nil) {
			// No compare-and-set will prove the remembered head: an answer that
			// moves nothing is only given from one just read.
			st.forget()
			continue
		}
		if errors.Is(err, membership.ErrStaleBase) && st.revision != staleAt {
			staleAt = st.revision
			st.forget()
			continue
		}
		if errors.Is(err, membership.ErrStaleBase) { // yet the head did not move
			return nil, false, fmt.Errorf("%w: %w", mailbox.ErrCorrupt, err)
		}
		if err != nil {
			return nil, false, err
		}
		if p.unchanged != nil {
			return p.unchanged, false, s.settle(ctx, st, k, p.unchanged)
		}
		switch again, err := s.charge(ctx, &st, &b, p, remembered); {
		case err != nil:
			return nil, false, err
		case again:
			continue
		}
		decided, err := s.decide(ctx, st, p)
		b.used = b.used || decided || p.unsure
		if err != nil {
			return nil, false, err
		}
		if decided {
			return p.next.row, false, s.finish(ctx, st, p.version)
		}
	}
	return nil, false, fmt.Errorf("%w (conversation %q/%q)", ErrConflict, c.Tenant, c.ID)
}

// turn waits for the conversation's turn.
func (s *Service) turn(ctx context.Context, c mailbox.Conversation) (*state, error) {
	st, err := s.states.acquire(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("waiting for the turn in conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	return st, nil
}

// pause lets other processes go first after some lost races.
func pause(ctx context.Context, attempt int) error {
	if attempt < 4 {
		return ctx.Err()
	}
	t := time.NewTimer(time.Duration(min(attempt, 20)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// load reads the head unless it is known.
func (s *Service) load(ctx context.Context, st *state) error {
	if st.known {
		return nil
	}
	c := st.conversation
	b, revision, err := s.cfg.Heads.Head(ctx, c)
	if err != nil {
		return fmt.Errorf("read the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	h := head{}
	if revision > 0 {
		if h, err = decodeHead(c, b); err != nil {
			return err
		}
	}
	st.head, st.revision, st.known = h, revision, true
	return nil
}

// lookUp returns the row of the client message, nil when there is none.
func (s *Service) lookUp(ctx context.Context, c mailbox.Conversation, k messageKey) (*statev1.CommittedMessage, error) {
	b, err := s.cfg.Heads.Committed(ctx, c, k.sender, k.clientMessageID)
	if errors.Is(err, mailbox.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up a client message of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	row := &statev1.CommittedMessage{}
	if err := proto.Unmarshal(b, row); err != nil {
		return nil, fmt.Errorf("%w: look-up row of client message %q in conversation %q/%q: %w", mailbox.ErrCorrupt, k.clientMessageID, c.Tenant, c.ID, err)
	}
	if string(row.GetRequestDigest()) != string(k.digest[:]) {
		return nil, fmt.Errorf("%w: client_message_id %q in conversation %q; use a new id for new content", ErrClientMessageReused, k.clientMessageID, c.ID)
	}
	return row, nil
}

// decide moves the head by compare-and-set. It reports false when the head has
// to be read again: it moved, or it is not known whether it did.
func (s *Service) decide(ctx context.Context, st *state, p *plan) (bool, error) {
	c := st.conversation
	b, err := p.next.encode(c)
	if err != nil {
		return false, err
	}
	switch err := s.cfg.Heads.CompareAndSetHead(ctx, c, st.revision, b, true); {
	case err == nil:
		s.decided.Add(1)
		st.head, st.revision = p.next, st.revision+1
		if p.version != nil {
			st.keepVersion(p.version)
		}
		return true, nil
	case again(err):
		// When it was applied after all, the head read next has this record as
		// pending, or its look-up row is written.
		p.unsure = !errors.Is(err, mailbox.ErrHeadMoved)
		st.forget()
		return false, nil
	default:
		p.unsure = true
		st.forget()
		return false, fmt.Errorf("move the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
}

// stamp returns committed_at for a record after h.
func (s *Service) stamp(c mailbox.Conversation, h *head) int64 {
	now := max(s.cfg.Now().UnixMilli(), 1)
	if h.committedAt <= now {
		return now
	}
	if lead := time.Duration(h.committedAt-now) * time.Millisecond; lead > maxClockLead {
		s.cfg.Logger.Warn("the conversation's last record is stamped far ahead of the clock; committed_at steps back",
			"tenant", c.Tenant, "conversation", c.ID, "lead", lead)
		return now
	}
	return h.committedAt
}

// fence returns the fencing epoch of a record after h.
func fence(h *head, requested uint64) (uint64, error) {
	current := max(h.fencingEpoch, 1)
	if requested == 0 {
		return current, nil
	}
	if requested < current {
		return 0, fmt.Errorf("%w: the writer has %d, the conversation %d", ErrStaleFencingEpoch, requested, current)
	}
	return requested, nil
}

// settle makes the answer "nothing changed" lasting. A look-up row is not synced
// by itself, it is durable before a later durable write of the head; so the
// head is written once more as it is, durably, and once to say that nothing is
// pending. A store that may lose both gets the row back from the outbox.
func (s *Service) settle(ctx context.Context, st *state, k messageKey, row *statev1.CommittedMessage) error {
	c := st.conversation
	if err := s.putRow(ctx, c, k.sender, k.clientMessageID, row); err != nil {
		return err
	}
	if err := s.keepAnswer(ctx, c, k, row); err != nil {
		return err
	}
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return err
		}
		if err := s.load(ctx, st); err != nil {
			return err
		}
		if st.head.pending != nil {
			if err := s.finish(ctx, st, nil); err != nil {
				return err
			}
			continue
		}
		b, err := st.head.encode(c)
		if err != nil {
			return err
		}
		err = s.cfg.Heads.CompareAndSetHead(ctx, c, st.revision, b, true)
		if err == nil {
			st.revision++
			return s.clear(ctx, st)
		}
		st.forget()
		if !again(err) {
			return fmt.Errorf("move the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
		}
	}
	return fmt.Errorf("%w (conversation %q/%q)", ErrConflict, c.Tenant, c.ID)
}

func (s *Service) putRow(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string, row *statev1.CommittedMessage) error {
	b, err := deterministic.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode a look-up row: %w", err)
	}
	if err := s.cfg.Heads.PutCommitted(ctx, c, sender, clientMessageID, b); err != nil {
		return fmt.Errorf("write a look-up row of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	return nil
}
