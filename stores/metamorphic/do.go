package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// The operations.
const (
	opAppend         = "append"
	opScan           = "scan"
	opPull           = "pull"
	opBounds         = "bounds"
	opTrim           = "trim"
	opClock          = "clock"
	opExpire         = "expire"
	opReopen         = "reopen"
	opCrash          = "crash"
	opFence          = "fence"
	opRelease        = "release"
	opRenew          = "renew"
	opBoundary       = "boundary"
	opShard          = "shard"
	opLane           = "lane"
	opBegin          = "begin"
	opMark           = "mark"
	opCommit         = "commit"
	opCommitAgain    = "commit again"
	opLookup         = "lookup"
	opProgress       = "progress"
	opFences         = "fences"
	opOutboxPut      = "outbox put"
	opOutbox         = "outbox"
	opHeadSet        = "head set"
	opHead           = "head"
	opPending        = "pending"
	opCommittedPut   = "committed put"
	opCommitted      = "committed"
	opVersionPut     = "version put"
	opVersion        = "version"
	opDirectory      = "directory"
	opSlots          = "slots"
	opCommitStatePut = "commit state put"
	opCommitState    = "commit state"
	opRegistrySet    = "registry set"
	opRegistry       = "registry"
)

// player is a store at work on a history, with what its owner would remember.
type player struct {
	name    string
	subject *storetest.Subject
	store   mailbox.Store
	owners  map[mailbox.Shard][]mailbox.Ownership // each that was made, in order
	moves   map[mailbox.Shard][2]mailbox.Watermarks
	pending map[string]bool // conversations whose last write was a durable one
	loose   bool            // something was written that no durable write came after
	out     strings.Builder
}

func newPlayer(name string, s *storetest.Subject) *player {
	return &player{
		name: name, subject: s, store: s.Store, owners: map[mailbox.Shard][]mailbox.Ownership{},
		moves: map[mailbox.Shard][2]mailbox.Watermarks{}, pending: map[string]bool{},
	}
}

// answer runs a step and returns what the store answered, in words.
func (p *player) answer(ctx context.Context, s *Step) string {
	p.out.Reset()
	if err := p.do(ctx, s); err != nil {
		p.say("error: %s", kind(err))
	}
	return p.out.String()
}

func (p *player) say(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// kinds are the errors that callers tell apart.
var kinds = []error{
	mailbox.ErrSeqRange, mailbox.ErrInvalidID, mailbox.ErrInvalidEntry, mailbox.ErrGroupTooLarge, mailbox.ErrCursorExpired,
	mailbox.ErrNotOwner, mailbox.ErrWatermarkConflict, mailbox.ErrUnknownChunk, mailbox.ErrManifestMismatch, mailbox.ErrDeploymentMismatch,
	mailbox.ErrDispatchKnown, mailbox.ErrStoreRestarted, mailbox.ErrUnsafeStore, mailbox.ErrSchema, mailbox.ErrNotFound, mailbox.ErrHeadMoved,
	mailbox.ErrOutcomeUnknown, mailbox.ErrStoreLocked, mailbox.ErrStoreFailed, mailbox.ErrCorrupt, mailbox.ErrLeaseHeld,
}

func kind(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	return "unknown: " + err.Error()
}

func (p *player) do(ctx context.Context, s *Step) error {
	switch s.Op {
	case opClock: // the run moves it, once for all
		return nil
	case opAppend:
		return p.append(ctx, s)
	case opScan:
		return p.scan(ctx, mailbox.Scan{User: userOf(s.User), After: s.After.seq(), UpTo: s.UpTo.seq(), Limits: mailbox.PageLimits{MaxItems: s.MaxItems, MaxBytes: s.MaxBytes}}, nil)
	case opPull:
		return p.pull(ctx, s)
	case opBounds:
		b, err := p.bounds(ctx, s.User)
		p.say("trim %s gap %s", b.Trim, b.Gap)
		return err
	case opTrim:
		return p.durably(p.store.TruncateBefore(ctx, userOf(s.User), s.UpTo.seq()))
	case opExpire:
		if p.subject.Expire != nil {
			return p.subject.Expire()
		}
		return nil
	case opReopen, opCrash:
		return p.restart(ctx, s.Op == opCrash)
	case opFence, opRelease, opRenew, opBoundary, opShard, opLane, opCommit, opCommitAgain:
		return p.doOwner(ctx, s)
	case opBegin, opMark, opLookup, opProgress, opFences, opOutboxPut, opOutbox:
		return p.doProgress(ctx, s)
	}
	return p.doRows(ctx, s)
}

// durably notes that a write that is durable when it returns was made.
func (p *player) durably(err error) error {
	if err == nil {
		p.loose = false
	}
	return err
}

// loosely notes that a write was made that a crash may lose until a durable one
// follows.
func (p *player) loosely(err error) error {
	if err == nil {
		p.loose = true
	}
	return err
}

// restart closes or crashes the store and opens it again. Leases are released
// before: one may or may not end with its process. What a crash may lose is made
// durable before: any later durable write does that.
func (p *player) restart(ctx context.Context, crash bool) error {
	for n := range mailbox.Shard(shards) {
		if own, ok := p.owner(n, false); ok {
			if err := p.store.ReleaseLease(ctx, own); err != nil {
				return err
			}
		}
	}
	if p.loose && crash {
		row := mailbox.FenceRow{Conversation: mailbox.Conversation{Tenant: tenant, ID: "barrier"}}
		if err := p.durably(p.store.PutOutboxFences(ctx, 99, []mailbox.FenceRow{row})); err != nil {
			return err
		}
	}
	if crash && p.subject.Crash != nil {
		p.store = p.subject.Crash()
	} else {
		p.store = p.subject.Reopen()
	}
	return nil
}

func userOf(id string) mailbox.User { return mailbox.User{Tenant: tenant, ID: id} }

func conversationOf(id string) mailbox.Conversation {
	return mailbox.Conversation{Tenant: tenant, ID: id}
}

func dispatchOf(name Position) mailbox.DispatchID {
	return mailbox.NewDispatchID(conversationOf("c"), uint64(name), "message", 0)
}

func (p *player) append(ctx context.Context, s *Step) error {
	chunks := make([]mailbox.ChunkAppend, len(s.Groups))
	for i := range s.Groups {
		c, err := chunkOf(&s.Groups[i])
		if err != nil {
			return err
		}
		chunks[i] = c
	}
	for i, r := range p.store.AppendBatch(ctx, chunks) {
		switch {
		case r.Err != nil:
			p.say("%s: %s", chunks[i].Ref, kind(r.Err))
		case r.Durable.Chunk() != chunks[i].Ref:
			p.say("%s: a receipt of %s", chunks[i].Ref, r.Durable.Chunk())
		default:
			p.loose = false
		}
	}
	return nil
}

func chunkOf(p *Put) (mailbox.ChunkAppend, error) {
	var events []mailbox.Event
	for typ, n := range p.Payloads {
		if n >= 0 {
			events = append(events, mailbox.Event{Type: mailbox.EventType(typ), Payload: payload(p.Seq, typ, n)})
		}
	}
	id := dispatchOf(p.Seq)
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: tenant, Seq: p.Seq.seq(), DispatchID: id, ConversationID: "c", ConversationSeq: uint64(p.Seq), MessageID: "message", SenderID: "sender",
		CreatedAt: storetest.Start.UnixMilli() + p.Created,
	}, events)
	if err != nil {
		return mailbox.ChunkAppend{}, err
	}
	place := mailbox.Place(userOf(p.To[0].User), shards)
	c := mailbox.ChunkAppend{Template: t, Ref: mailbox.ChunkRef{Shard: place.Shard, Dispatch: id, Seq: p.Seq.seq(), Lane: place.Lane}}
	for _, to := range p.To {
		c.Recipients = append(c.Recipients, mailbox.Recipient{User: to.User, Events: to.Events})
	}
	return c, nil
}

// payload is bytes of all values.
func payload(seq Position, typ, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(int(seq) + 31*typ + 7*i)
	}
	return out
}

// scan reads a page and says what is on it.
func (p *player) scan(ctx context.Context, q mailbox.Scan, page *mailbox.Page) error {
	got, err := p.store.RangeScan(ctx, q)
	if err != nil {
		return err
	}
	for _, e := range got.Entries {
		b, err := mailbox.EncodeEntry(e)
		if err != nil {
			return err
		}
		sum := mailbox.Sum(b)
		p.say("%s %s %s %x", e.Seq, e.EventType, e.UserID, sum[:6])
	}
	p.say("covered through %s, complete %t", got.CoveredThrough, got.Complete)
	if page != nil {
		*page = got
	}
	return nil
}

// pull follows a cursor from the user's boundaries to the end.
func (p *player) pull(ctx context.Context, s *Step) error {
	b, err := p.bounds(ctx, s.User)
	if err != nil {
		return err
	}
	after := b.Oldest()
	for after <= s.UpTo.seq() {
		var page mailbox.Page
		q := mailbox.Scan{User: userOf(s.User), After: after, UpTo: s.UpTo.seq(), Limits: mailbox.PageLimits{MaxItems: s.MaxItems, MaxBytes: s.MaxBytes}}
		if err := p.scan(ctx, q, &page); err != nil || page.Complete {
			return err
		}
		if page.CoveredThrough <= after {
			p.say("no progress after %s", after)
			return nil
		}
		after = page.CoveredThrough
	}
	return nil
}

// bounds are a user's boundaries. A gap that the trim covers may be forgotten with
// the entries that were trimmed: it makes no cursor older.
func (p *player) bounds(ctx context.Context, user string) (mailbox.Bounds, error) {
	b, err := p.store.UserBounds(ctx, userOf(user))
	if b.Gap < b.Trim {
		b.Gap = 0
	}
	return b, err
}

// owner is the last ownership of a shard, or the one before.
func (p *player) owner(n mailbox.Shard, stale bool) (mailbox.Ownership, bool) {
	all := p.owners[n]
	if stale && len(all) > 0 {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return mailbox.Ownership{Shard: n}, false
	}
	return all[len(all)-1], true
}

func (p *player) doOwner(ctx context.Context, s *Step) error {
	own, _ := p.owner(s.Shard, s.Stale)
	switch s.Op {
	case opFence:
		token := mailbox.Token{byte(s.Token), byte(s.Token >> 8), byte(s.Token >> 16), 1}
		made, err := p.store.Fence(ctx, mailbox.FenceRequest{Shard: s.Shard, LogEpoch: s.Epoch, Token: token, Owner: fmt.Sprint("node-", s.Token), Address: "address", Lease: lease})
		if err == nil {
			if last, _ := p.owner(s.Shard, false); last != made {
				p.owners[s.Shard] = append(p.owners[s.Shard], made)
			}
			p.say("epoch %d token %x", made.Epoch, made.Token)
		}
		return p.durably(err)
	case opRelease:
		return p.store.ReleaseLease(ctx, own)
	case opRenew:
		return p.store.RenewLease(ctx, own, lease)
	case opBoundary:
		return p.store.PutBoundary(ctx, own, mailbox.Boundary{Epoch: s.Epoch, Offset: s.Offset})
	case opShard:
		return p.shard(ctx, s.Shard)
	case opLane:
		w, err := p.store.LaneWatermark(ctx, s.Shard, s.Lane)
		p.say("W %s floor %s expired %s", w.W, w.Floor, w.TTLFrontier)
		return err
	case opCommit:
		st, err := p.store.LoadShard(ctx, s.Shard)
		if err != nil {
			return err
		}
		from, to := st.Watermarks, st.Watermarks
		for _, l := range s.Lanes {
			to.W[l.Lane], to.Floor[l.Lane] = l.Seq.seq(), l.Seq.seq()
		}
		to.F = max(to.F, s.Frontier.seq())
		if s.Stale && len(s.Lanes) > 0 {
			from.W[(s.Lanes[0].Lane+1)%mailbox.LaneCount]++
		}
		if err := p.durably(p.store.CommitWatermarks(ctx, own, &from, &to)); err != nil {
			return err
		}
		p.moves[s.Shard] = [2]mailbox.Watermarks{from, to}
		return nil
	default: // opCommitAgain: the answer was lost
		move, ok := p.moves[s.Shard]
		if !ok {
			return nil
		}
		return p.store.CommitWatermarks(ctx, own, &move[0], &move[1])
	}
}

// shard says all of a shard's state but the store's incarnation, which is its own.
func (p *player) shard(ctx context.Context, n mailbox.Shard) error {
	st, err := p.store.LoadShard(ctx, n)
	if err != nil {
		return err
	}
	p.say("epoch %d token %x owner %s at %s, F %s, boundaries %v", st.Epoch, st.Token, st.Owner, st.Address, st.F, st.Boundaries)
	if st.LeaseUntil.After(storetest.Start) { // one that was released ended at a time of the store's choice
		p.say("lease until %d", st.LeaseUntil.UnixMilli())
	}
	for lane := range st.W {
		if st.W[lane] != 0 || st.Floor[lane] != 0 {
			p.say("lane %d W %s floor %s", lane, st.W[lane], st.Floor[lane])
		}
	}
	return nil
}

func fenceRows(fs []Fence) (out []mailbox.FenceRow) {
	for _, f := range fs {
		out = append(out, mailbox.FenceRow{Conversation: conversationOf(f.Conversation), Base: f.Base, Seen: f.Seen})
	}
	return out
}

func (p *player) sayFences(rows []mailbox.FenceRow) {
	slices.SortFunc(rows, func(a, b mailbox.FenceRow) int { return strings.Compare(a.Conversation.ID, b.Conversation.ID) })
	for _, r := range rows {
		p.say("%s base %d seen %v", r.Conversation.ID, r.Base, r.Seen)
	}
}
