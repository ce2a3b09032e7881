package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
)

const tenant = "acme"

// group is one of the groups: its first members stay, others come and go.
type group struct {
	id      string
	members int
	every   int // one in so many messages of a writer goes here
}

var groups = []group{{"g1", 1, 9}, {"g3", 3, 5}, {"g300", 300, 11}, {"g3000", 3000, 70}, {"g20k", 20_000, 350}}

func user(i int) string { return fmt.Sprintf("u%d", i) }

func users(n int) []string {
	us := make([]string, n)
	for i := range us {
		us[i] = user(i)
	}
	return us
}

// passing are the refusals after which the same request may succeed.
func passing(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch client.ReasonOf(err) {
	case client.Unreachable, reason.ShardMoved, reason.ShuttingDown, reason.Conflict, reason.LogUnavailable, reason.Unfinished,
		reason.DeadlineExceeded, reason.Canceled, reason.LaneOpening, reason.SnapshotUnavailable:
		return true
	}
	return false
}

// insist sends a request until it is answered: with hasty patience sometimes,
// and sometimes twice at once, as clients do.
func insist[T any](t *testing.T, rng *rand.Rand, give time.Duration, same func(a, b *T) bool, f func(ctx context.Context) (*T, error)) *T {
	once := func(patience time.Duration) (*T, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return f(ctx)
	}
	deadline := time.Now().Add(give)
	for try := 0; ; try++ {
		patience := 20 * time.Second
		if rng.IntN(20) == 0 {
			patience = time.Duration(1+rng.IntN(50)) * time.Millisecond
		}
		var twin *T
		var wg sync.WaitGroup
		if rng.IntN(15) == 0 {
			wg.Go(func() { twin, _ = once(patience) })
		}
		res, err := once(patience)
		wg.Wait()
		if err == nil {
			if twin != nil && !same(res, twin) {
				t.Errorf("one request has two answers: %+v and %+v", res, twin)
			}
			return res
		}
		if !passing(err) {
			t.Errorf("a request is refused: %v", err)
			return nil
		}
		if time.Now().After(deadline) {
			t.Errorf("a request is not answered for %v: %v", give, err)
			return nil
		}
		time.Sleep(time.Duration(20+rng.IntN(200)) * time.Millisecond)
	}
}

// writer is one client that writes until stop is closed.
type writer struct {
	t    *testing.T
	cl   *client.Client
	m    *model
	name string
	rng  *rand.Rand
	n    int
}

// give is how long a request may stay unanswered.
const give = 4 * time.Minute

func (w *writer) id() string {
	w.n++
	return fmt.Sprintf("%s-%d", w.name, w.n)
}

func sameCommit(a, b *lanewayv1.CommitResponse) bool {
	return a.ConversationSeq == b.ConversationSeq && a.MessageId == b.MessageId
}

func sameChange(a, b *lanewayv1.MembershipResponse) bool {
	return a.ConversationSeq == b.ConversationSeq && a.Changed == b.Changed
}

func (w *writer) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(w.rng.IntN(40)) * time.Millisecond):
		}
		w.one()
	}
}

func (w *writer) one() {
	for _, g := range groups {
		if w.rng.IntN(g.every) == 0 {
			w.post(g)
			return
		}
	}
	if w.rng.IntN(6) == 0 {
		w.change(groups[w.rng.IntN(3)])
		return
	}
	w.single()
}

func (w *writer) commit(conv string, a act, r *lanewayv1.CommitRequest) {
	r.TenantId, r.ConversationId, r.SenderId, r.ClientMessageId, r.Body = tenant, conv, w.name, w.id(), []byte("soak")
	res := insist(w.t, w.rng, give, sameCommit, func(ctx context.Context) (*lanewayv1.CommitResponse, error) { return w.cl.Commit(ctx, r) })
	if res == nil {
		return
	}
	a.seq, a.message = res.ConversationSeq, res.MessageId
	w.m.note(conv, a)
}

func (w *writer) single() {
	i, j := w.rng.IntN(40), 40+w.rng.IntN(40)
	us := []string{user(i), user(j)}
	w.commit(fmt.Sprintf("s-%d-%d", i, j%5), act{kind: single, users: us}, &lanewayv1.CommitRequest{
		ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE, RecipientIds: us,
	})
}

func (w *writer) post(g group) {
	r := &lanewayv1.CommitRequest{ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_GROUP}
	a := act{kind: message}
	if w.rng.IntN(3) == 0 {
		seen := map[string]bool{}
		for range 1 + w.rng.IntN(4) {
			if u := user(w.rng.IntN(g.members + 3)); !seen[u] { // also some who are no members
				seen[u] = true
				a.mentions = append(a.mentions, u)
			}
		}
		r.Events = []*logv1.Event{
			{Kind: logv1.EventKind_EVENT_KIND_MESSAGE},
			{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: a.mentions, Payload: []byte("@")},
		}
	}
	w.commit(g.id, a, r)
}

// change lets some of the users behind the lasting members come or go.
func (w *writer) change(g group) {
	a := act{kind: join}
	if w.rng.IntN(2) == 0 {
		a.kind = leave
	}
	seen := map[string]bool{}
	for range 1 + w.rng.IntN(5) {
		if u := user(g.members + w.rng.IntN(20)); !seen[u] {
			seen[u] = true
			a.users = append(a.users, u)
		}
	}
	id := w.id()
	res := insist(w.t, w.rng, give, sameChange, func(ctx context.Context) (*lanewayv1.MembershipResponse, error) {
		if a.kind == leave {
			return w.cl.Leave(ctx, &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: g.id, UserIds: a.users, ClientMessageId: id, ActorId: w.name})
		}
		return w.cl.Join(ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: g.id, UserIds: a.users, ClientMessageId: id, ActorId: w.name})
	})
	if res == nil {
		return
	}
	a.seq, a.changed = res.ConversationSeq, res.Changed
	w.m.note(g.id, a)
}

// create makes the group with its lasting members, while faults happen.
func (w *writer) create(g group) {
	id, us := w.id(), users(g.members)
	res := insist(w.t, w.rng, give, sameChange, func(ctx context.Context) (*lanewayv1.MembershipResponse, error) {
		return w.cl.ImportUsers(ctx, client.Import{Tenant: tenant, Group: g.id, Actor: w.name, ClientMessageID: id}, us, nil)
	})
	if res != nil {
		w.m.note(g.id, act{kind: join, users: us, seq: res.ConversationSeq, changed: res.Changed})
	}
}

// reader keeps the cursor of one mailbox and everything that it was ever told.
type reader struct {
	t    *testing.T
	cl   *client.Client
	user string
	rng  *rand.Rand

	cursor string
	seen   []*lanewayv1.Entry
}

// pull goes on from the cursor once; what was told before must not come again.
func (r *reader) pull(ctx context.Context) error {
	p, err := r.cl.Pull(ctx, &lanewayv1.PullRequest{TenantId: tenant, UserId: r.user, Cursor: r.cursor, MaxItems: int32(1 + r.rng.IntN(50))})
	if err != nil {
		return err
	}
	r.seen = append(r.seen, p.Entries...)
	r.cursor = p.Cursor
	return nil
}

func (r *reader) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(10+r.rng.IntN(100)) * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := r.pull(ctx)
		cancel()
		if err != nil && !passing(err) {
			r.t.Errorf("pull of %s: %v", r.user, err)
			return
		}
	}
}

// whole reads a mailbox from the beginning.
func whole(cl *client.Client, u string) ([]*lanewayv1.Entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all []*lanewayv1.Entry
	_, err := cl.PullAll(ctx, client.Mailbox{Tenant: tenant, User: u}, "", func(p *client.Page) error {
		all = append(all, p.Entries...)
		return nil
	})
	return all, err
}

// watermarks looks at every lane's W again and again: it must never go back.
type watermarks struct {
	t    *testing.T
	cl   *client.Client
	last map[[2]uint32]uint64
}

func (w *watermarks) look() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	shards, err := w.cl.Shards(ctx, true)
	if err != nil {
		return err
	}
	for _, s := range shards {
		for _, l := range s.Lanes {
			k := [2]uint32{s.Shard, l.Lane}
			if l.Watermark < w.last[k] {
				w.t.Errorf("W of shard %d lane %d went back from %x to %x", s.Shard, l.Lane, w.last[k], l.Watermark)
			}
			w.last[k] = l.Watermark
		}
	}
	return nil
}

func (w *watermarks) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(150 * time.Millisecond):
		}
		if err := w.look(); err != nil && !passing(err) {
			w.t.Errorf("watermarks: %v", err)
			return
		}
	}
}
