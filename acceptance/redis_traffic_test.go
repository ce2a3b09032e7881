package acceptance_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/mailbox"
)

// What the traffic consists of: single chats among the first members of a crowd,
// messages to the crowd, and a club whose members come, go and come again.
const (
	crowd0   = "crowd"
	club     = "club"
	crowdMen = 240
	talkers  = 24 // of the crowd, who have single chats
	regulars = 10 // of the club, who never leave
	comers   = 12 // who come and go
)

func named(prefix string, n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return users
}

// asked is a request; answered is what a client was told about it.
type asked struct {
	conv  string
	kind  askKind
	users []string // recipients, joiners, leavers
	named []string // mentioned by a message
	id    string   // client_message_id
}

type askKind int

const (
	askChat askKind = iota
	askPost
	askJoin
	askLeave
)

type answered struct {
	seq     uint64
	message string
	version uint64
	changed uint32
}

func (a *asked) send(ctx context.Context, cl *client.Client) (answered, error) {
	const actor = "m0"
	switch a.kind {
	case askJoin:
		r, err := cl.Join(ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: a.conv, UserIds: a.users, ClientMessageId: a.id, ActorId: actor})
		return ofChange(r), err
	case askLeave:
		r, err := cl.Leave(ctx, &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: a.conv, UserIds: a.users, ClientMessageId: a.id, ActorId: actor})
		return ofChange(r), err
	}
	c := &lanewayv1.CommitRequest{
		TenantId: tenant, ConversationId: a.conv, SenderId: actor, ClientMessageId: a.id, ConversationKind: groupKind, Body: []byte(a.id),
	}
	if a.kind == askChat {
		c.ConversationKind, c.RecipientIds = singleKind, a.users
	}
	if len(a.named) > 0 {
		c.Events = []*logv1.Event{{Kind: messageKind}, {Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: a.named, Payload: []byte(a.id)}}
	}
	r, err := cl.Commit(ctx, c)
	return answered{seq: r.GetConversationSeq(), message: r.GetMessageId()}, err
}

func ofChange(r *lanewayv1.MembershipResponse) answered {
	return answered{seq: r.GetConversationSeq(), version: r.GetMembershipVersion(), changed: r.GetChanged()}
}

// passes reports whether the same request may succeed later. A reason that means
// a defect, or that an operator is needed, does not pass.
func passes(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch client.ReasonOf(err) {
	case client.Unreachable, reason.ShardMoved, reason.ShuttingDown, reason.Conflict, reason.LogUnavailable, reason.Unfinished, reason.StoreUnavailable,
		reason.StoreRecovering, reason.DeadlineExceeded, reason.Canceled, reason.LaneOpening, reason.SnapshotUnavailable:
		return true
	}
	return false
}

type exchange struct {
	asked
	answered
}

// traffic is clients that write, each request until it is answered, and readers.
type traffic struct {
	t    *testing.T
	node *redisNode
	rng  *rand.Rand
	stop chan struct{}

	writers, others sync.WaitGroup
	readers         []*follower

	mu    sync.Mutex
	done  []exchange
	kinds map[askKind]int
	more  chan struct{} // closed and replaced with each answer
	fails map[string]int
}

// startTraffic makes the groups and lets traffic flow until end.
func startTraffic(t *testing.T, node *redisNode, seed uint64) *traffic {
	t.Helper()
	x := &traffic{t: t, node: node, rng: rand.New(rand.NewPCG(seed, 0)), stop: make(chan struct{}), kinds: map[askKind]int{}, more: make(chan struct{}), fails: map[string]int{}}
	t.Cleanup(x.end)
	cl := node.dial()
	members := named("m", crowdMen)
	x.note(x.insist(cl, &asked{conv: crowd0, kind: askJoin, users: members, id: "crowd"}))
	x.note(x.insist(cl, &asked{conv: club, kind: askJoin, users: named("c", regulars), id: "club"}))
	for w := range 3 {
		x.write(seed, fmt.Sprint("chat", w), func(rng *rand.Rand, a *asked) {
			i, j := rng.IntN(talkers/2), talkers/2+rng.IntN(talkers/2)
			a.conv, a.kind, a.users = fmt.Sprintf("chat-%d-%d", i%3, j%4), askChat, []string{members[i], members[j]}
		})
	}
	x.write(seed, "crowd", func(rng *rand.Rand, a *asked) {
		a.conv, a.kind = crowd0, askPost
		if rng.IntN(3) == 0 {
			a.named = members[:1+rng.IntN(5)]
		}
	})
	x.write(seed, "talk", func(_ *rand.Rand, a *asked) { a.conv, a.kind = club, askPost })
	x.write(seed, "move", func(rng *rand.Rand, a *asked) {
		a.conv, a.kind = club, askJoin
		if rng.IntN(2) == 0 {
			a.kind = askLeave
		}
		first := rng.IntN(comers)
		for i := range 1 + rng.IntN(3) {
			a.users = append(a.users, fmt.Sprintf("v%d", (first+i)%comers))
		}
	})
	for _, u := range []string{"m0", "m1", "m12", "m13", "m200", "c0", "c1", "v0", "v1"} {
		f := &follower{t: t, cl: node.dial(), user: u, rng: rand.New(rand.NewPCG(seed, uint64(len(x.readers)+100)))}
		x.readers = append(x.readers, f)
		x.others.Go(func() { f.run(x.stop) })
		x.others.Go(func() { f.watch(x.stop) })
	}
	return x
}

// write lets a client write one request after the other until the end.
func (x *traffic) write(seed uint64, name string, next func(*rand.Rand, *asked)) {
	cl := x.node.dial()
	stream := uint64(0)
	for _, b := range []byte(name) {
		stream = stream*31 + uint64(b)
	}
	rng := rand.New(rand.NewPCG(seed, stream))
	x.writers.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-x.stop:
				return
			case <-time.After(time.Duration(rng.IntN(20)) * time.Millisecond): // a client's pace
			}
			a := &asked{id: fmt.Sprintf("%s-%d", name, n)}
			next(rng, a)
			e, ok := x.insist(cl, a)
			if !ok {
				return
			}
			x.note(e, true)
		}
	})
}

// insist sends a request until it is answered, as a client does.
func (x *traffic) insist(cl *client.Client, a *asked) (exchange, bool) {
	for deadline := time.Now().Add(patience); ; <-time.After(30 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		r, err := a.send(ctx, cl)
		cancel()
		if err == nil {
			return exchange{*a, r}, true
		}
		x.mu.Lock()
		x.fails[string(client.ReasonOf(err))]++
		x.mu.Unlock()
		if !passes(err) || time.Now().After(deadline) || x.t.Failed() {
			x.t.Errorf("%s is not answered: %v", a.id, err)
			return exchange{}, false
		}
	}
}

func (x *traffic) note(e exchange, ok bool) {
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done = append(x.done, e)
	x.kinds[e.kind]++
	close(x.more)
	x.more = make(chan struct{})
}

// answers waits for so many further answers of each kind.
func (x *traffic) answers(want map[askKind]int) {
	x.t.Helper()
	x.mu.Lock()
	goal := map[askKind]int{}
	for k, n := range want {
		goal[k] = x.kinds[k] + n
	}
	x.mu.Unlock()
	timeout := time.After(patience)
	for {
		x.mu.Lock()
		reached, more := true, x.more
		for k, n := range goal {
			reached = reached && x.kinds[k] >= n
		}
		x.mu.Unlock()
		if reached {
			return
		}
		select {
		case <-more:
		case <-timeout:
			x.t.Fatalf("%v answers are wanted, there are %v; refusals %v; readiness %q", goal, x.kinds, x.fails, x.node.missing())
		}
	}
}

// end stops writers and readers. Every request is answered then.
func (x *traffic) end() {
	select {
	case <-x.stop:
	default:
		close(x.stop)
	}
	x.writers.Wait()
	x.others.Wait()
}

// follower reads one mailbox all the time and keeps what it was told.
type follower struct {
	t    *testing.T
	cl   *client.Client
	user string
	rng  *rand.Rand

	cursor string
	seen   []*lanewayv1.Entry
}

// cursorAfter is the position in a cursor, which only servers are to look at.
func cursorAfter(text string) uint64 {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 19 {
		return 0
	}
	return binary.BigEndian.Uint64(b[11:])
}

func (f *follower) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(10+f.rng.IntN(80)) * time.Millisecond):
		}
		one := f.pull
		if f.rng.IntN(8) == 0 {
			one = f.again
		}
		if err := one(); err != nil && !passes(err) {
			f.t.Errorf("pull of %s: %v", f.user, err)
			return
		}
	}
}

// pull goes on from the cursor. The position that it is told is never behind the
// one that it was told before, and what it gets lies behind that.
func (f *follower) pull() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := f.cl.Pull(ctx, &lanewayv1.PullRequest{TenantId: tenant, UserId: f.user, Cursor: f.cursor, MaxItems: int32(1 + f.rng.IntN(60))})
	if err != nil {
		return err
	}
	before, now := cursorAfter(f.cursor), cursorAfter(p.Cursor)
	if now < before {
		f.t.Errorf("%s was told position %x, and then %x", f.user, before, now)
	}
	for _, e := range p.Entries {
		if e.Seq <= before || e.Seq > now {
			f.t.Errorf("%s got entry %x on the page from %x to %x", f.user, e.Seq, before, now)
		}
	}
	f.seen = append(f.seen, p.Entries...)
	f.cursor = p.Cursor
	return nil
}

// again reads the mailbox as another device does: it is told no less.
func (f *follower) again() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all []*lanewayv1.Entry
	end, err := f.cl.PullAll(ctx, client.Mailbox{Tenant: tenant, User: f.user}, "", func(p *client.Page) error {
		all = append(all, p.Entries...)
		return nil
	})
	if err != nil {
		return err
	}
	if told, was := cursorAfter(end), cursorAfter(f.cursor); told < was {
		f.t.Errorf("a device of %s was told position %x, and a later one %x", f.user, was, told)
	}
	if len(all) < len(f.seen) {
		f.t.Errorf("a device of %s was told %d entries, and a later one %d", f.user, len(f.seen), len(all))
		return nil
	}
	for i, e := range f.seen {
		if differs(e, all[i]) {
			f.t.Errorf("a device of %s was told %v, and a later one %v", f.user, e, all[i])
		}
	}
	return nil
}

// watch is told positions that never go back.
func (f *follower) watch(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		<-stop
	}()
	last := uint64(0)
	for ctx.Err() == nil {
		err := f.cl.Watch(ctx, client.Mailbox{Tenant: tenant, User: f.user}, "", func(w *lanewayv1.WatchResponse) error {
			if w.AvailableThrough < last {
				f.t.Errorf("a watcher of %s was told %x, and then %x", f.user, last, w.AvailableThrough)
			}
			last = w.AvailableThrough
			return nil
		})
		if err != nil && !passes(err) {
			f.t.Errorf("watch of %s: %v", f.user, err)
			return
		}
	}
}

func differs(a, b *lanewayv1.Entry) bool {
	return a.Seq != b.Seq || a.Kind != b.Kind || string(a.EventId) != string(b.EventId) || a.DispatchId != b.DispatchId || a.ConversationId != b.ConversationId ||
		a.ConversationSeq != b.ConversationSeq || a.MessageId != b.MessageId || a.SenderId != b.SenderId || a.CreatedAtMs != b.CreatedAtMs || string(a.Payload) != string(b.Payload)
}

// expected computes from the answers what every mailbox holds: for each user and
// conversation "seq KIND message". It fails when a seq is missing or was given
// out twice, or when an answer does not fit the ones before.
func (x *traffic) expected() map[string]map[string][]string {
	x.t.Helper()
	boxes := map[string]map[string][]string{}
	give := func(u, conv, line string) {
		if boxes[u] == nil {
			boxes[u] = map[string][]string{}
		}
		boxes[u][conv] = append(boxes[u][conv], line)
	}
	convs := map[string][]exchange{}
	for _, e := range x.done {
		if e.seq > 0 { // else a change that changed nothing
			convs[e.conv] = append(convs[e.conv], e)
		}
	}
	for conv, all := range convs {
		slices.SortFunc(all, func(a, b exchange) int { return int(a.seq) - int(b.seq) })
		members, version := map[string]bool{}, uint64(0)
		for i, e := range all {
			require.EqualValues(x.t, i+1, e.seq, "%s: a seq is missing or was given out twice: %v and %v", conv, e, all[max(i-1, 0)])
			changed := uint32(0)
			switch e.kind {
			case askChat:
				for _, u := range e.users {
					give(u, conv, fmt.Sprintf("%d MESSAGE %s", e.seq, e.message))
				}
			case askPost:
				for u := range members {
					give(u, conv, fmt.Sprintf("%d MESSAGE %s", e.seq, e.message))
					if slices.Contains(e.named, u) {
						give(u, conv, fmt.Sprintf("%d MENTION %s", e.seq, e.message))
					}
				}
				continue
			case askJoin:
				for _, u := range e.users {
					if !members[u] {
						members[u] = true
						changed++
					}
				}
				for u := range members {
					give(u, conv, fmt.Sprintf("%d MEMBERSHIP", e.seq))
				}
			case askLeave:
				for u := range members {
					give(u, conv, fmt.Sprintf("%d MEMBERSHIP", e.seq))
				}
				for _, u := range e.users {
					if members[u] {
						delete(members, u)
						changed++
					}
				}
			}
			if e.kind != askChat {
				require.Equal(x.t, changed, e.changed, "%v", e)
				require.Greater(x.t, e.version, version, "%s: a membership version was given out twice: %v", conv, e)
				version = e.version
			}
		}
	}
	return boxes
}

// verify waits until every mailbox holds what it must, and nothing else; and asks
// again for what was answered.
func (x *traffic) verify() {
	x.t.Helper()
	boxes := x.expected()
	cl := x.node.dial()
	for _, f := range x.readers {
		if boxes[f.user] == nil {
			boxes[f.user] = map[string][]string{}
		}
	}
	for u, want := range boxes {
		count := 0
		for _, lines := range want {
			count += len(lines)
		}
		var got []*lanewayv1.Entry
		for deadline := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
			got = nil
			_, err := cl.PullAll(x.t.Context(), client.Mailbox{Tenant: tenant, User: u}, "", func(p *client.Page) error {
				got = append(got, p.Entries...)
				return nil
			})
			if err != nil && !passes(err) {
				require.NoError(x.t, err)
			}
			if err == nil && len(got) >= count {
				break
			}
			require.True(x.t, time.Now().Before(deadline), "%s has %d entries of %d: %v", u, len(got), count, err)
		}
		have := map[string][]string{}
		for i, e := range got {
			if i > 0 {
				require.False(x.t, e.Seq < got[i-1].Seq || e.Seq == got[i-1].Seq && e.Kind <= got[i-1].Kind, "%s: %v after %v", u, e, got[i-1])
			}
			line := fmt.Sprintf("%d %s", e.ConversationSeq, entryLine(e))
			if e.Kind == logv1.EventKind_EVENT_KIND_MEMBERSHIP {
				line = fmt.Sprintf("%d MEMBERSHIP", e.ConversationSeq)
			}
			have[e.ConversationId] = append(have[e.ConversationId], line)
		}
		require.Equal(x.t, want, have, "the mailbox of %s", u)
	}
	for _, f := range x.readers {
		require.NoError(x.t, f.again())
	}
}

// repeats asks again for what was answered, the newest first: the answers are the
// same, and nothing is done.
func (x *traffic) repeats(done []exchange, most int) {
	x.t.Helper()
	cl := x.node.dial()
	for i := len(done) - 1; i >= max(0, len(done)-most); i-- {
		e := done[i]
		again, ok := x.insist(cl, &e.asked)
		require.True(x.t, ok)
		require.Equal(x.t, e.answered, again.answered, "%v", e.asked)
	}
}

// answeredSoFar is a copy of all exchanges.
func (x *traffic) answeredSoFar() []exchange {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.done)
}

// place says in which shard a user lives, of the two that these tests have.
func shardOf(user string) mailbox.Shard {
	return mailbox.Place(mailbox.User{Tenant: tenant, ID: user}, 2).Shard
}
