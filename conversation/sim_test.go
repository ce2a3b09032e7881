package conversation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run only this seed of the simulation")
	simSeeds = flag.Int("sim.seeds", 12, "how many seeds of the simulation to run")
)

// TestSimulation runs clients against several processes on one store, with
// crashes, power failures and lost answers at random steps, and checks the
// outbox against the model.
func TestSimulation(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := newPowered(t, t.Context())
		defer d.close()
		s := newSimulation(t, d.deployment, seed)
		s.disaster = func() { s.cutPower(d) }
		s.run()
	})
}

// TestSimulationOverLostTails is the same on a store that comes back again and
// again without its last acknowledged writes, while records are in flight, and
// while the processes recover from the loss before.
func TestSimulationOverLostTails(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := newLossy(t, t.Context())
		defer d.close()
		s := newSimulation(t, d.deployment, seed)
		s.lossy = d
		s.disaster = func() { s.loseTail(d) }
		s.run()
	})
}

func eachSeed(t *testing.T, simulate func(*testing.T, uint64)) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	seeds := uint64(*simSeeds)
	if testing.Short() {
		seeds = min(seeds, 6)
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { simulate(t, seed) })
	}
}

const (
	simProcesses = 3
	simClients   = 6
	simRequests  = 40 // of each client
)

type simulation struct {
	t     *testing.T
	d     *deployment
	lossy *lossy // nil: the store loses nothing that it acknowledged
	// disaster is what happens to the store now and then.
	disaster func()

	mu  sync.Mutex
	rng *rand.Rand
	// world is held shared by every request and alone by a power failure.
	world     sync.RWMutex
	processes [simProcesses]*process
	failures  int

	// clock jumps with every request, so that the time of a group that is closed and
	// left so goes by.
	clock clock

	ledger   map[clientMessage]answer // the first answer to each request
	answered []request
}

func newSimulation(t *testing.T, d *deployment, seed uint64) *simulation {
	s := &simulation{t: t, d: d, rng: seeded(seed), ledger: map[clientMessage]answer{}}
	s.clock.set(time.Now())
	d.now = s.clock.Now
	return s
}

type clientMessage struct {
	conversation mailbox.Conversation
	sender, id   string
}

func (s *simulation) intn(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// next draws the fault of a call.
func (s *simulation) next(_ int, op string) fault {
	if s.lossy != nil {
		if s.intn(4) == 0 {
			s.lossy.outbox.land(1)
		}
		if s.intn(1200) == 0 {
			s.loseTail(s.lossy)
		}
		if op == "publish" || op == "keep answer" {
			switch s.intn(40) {
			case 0:
				return crashLate
			case 1:
				return waitLate
			}
		}
	}
	switch n := s.intn(1000); {
	case n < 6:
		return crashBefore
	case n < 12:
		return crashAfter
	case n < 30:
		return lostBefore
	case n < 60:
		return lostAfter
	}
	return noFault
}

func (s *simulation) run() {
	for i := range s.processes {
		s.processes[i] = s.start(s.next)
	}
	var wg sync.WaitGroup
	for client := range simClients {
		wg.Go(func() { s.client(client) })
	}
	// What waits for a record in flight goes on in the end.
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	tick := time.NewTicker(testPoll)
	defer tick.Stop()
	for {
		select {
		case <-done:
			s.finish()
			return
		case <-tick.C:
			s.d.outbox.land(1)
		}
	}
}

// start starts a process on the store as it is now.
func (s *simulation) start(next func(int, string) fault) *process {
	if s.lossy != nil {
		return startOn(s.t, s.d, s.lossy.server.connect(), next)
	}
	return startProcess(s.t, s.d, next)
}

func (s *simulation) client(n int) {
	for i := range simRequests {
		r := s.draw(fmt.Sprintf("client-%d", n), fmt.Sprintf("r%d", i))
		for range 1 + s.intn(12) { // then the client gives up; its request may still take effect
			if s.intn(150) == 0 {
				s.disaster()
			}
			if s.attempt(r) && s.intn(4) > 0 {
				break // else it asks again, as a client whose answer got lost
			}
		}
	}
}

// draw makes a request; sender and id make it its own.
func (s *simulation) draw(sender, id string) request {
	users := make([]string, 1+s.intn(4))
	for i, k := range rand.New(rand.NewPCG(uint64(s.intn(1<<30)), 1)).Perm(12)[:len(users)] {
		users[i] = fmt.Sprintf("user-%d", k)
	}
	g := fmt.Sprintf("g%d", s.intn(2))
	m := change(g, id, users...)
	m.Actor = sender
	switch s.intn(9) {
	case 8:
		return renumberRequest(g, sender+"-"+id)
	case 0:
		return commitRequest(message("c", sender, id, users...))
	case 1, 2:
		return changeRequest("join", m)
	case 3, 4:
		return changeRequest("leave", m)
	case 5:
		m.Users = nil
		for k := range 8 {
			m.Users = append(m.Users, fmt.Sprintf("user-%d", k))
		}
		return changeRequest("import", m)
	default:
		return commitRequest(groupMessage(g, sender, id))
	}
}

// attempt sends a request to some process and notes the answer. It reports
// whether the client has one.
func (s *simulation) attempt(r request) bool {
	s.world.RLock()
	defer s.world.RUnlock()
	i := s.intn(simProcesses)
	s.clock.set(s.clock.Now().Add(time.Duration(s.intn(3000)) * time.Millisecond))
	s.mu.Lock()
	p := s.processes[i]
	if p.crashed() || errors.Is(p.serve.Closed(), mailbox.ErrStoreRestarted) {
		p = s.start(s.next)
		s.processes[i] = p
	}
	s.mu.Unlock()
	switch s.intn(20) { // these meet faults too
	case 0:
		_ = p.serve.Sweep(context.Background())
	case 1, 2, 3:
		p.beatMu.Lock()
		_ = p.serve.Beat(context.Background())
		p.beatMu.Unlock()
	}
	if p.serve.Closed() != nil {
		switch err := p.serve.Recover(context.Background()); {
		case err == nil, passes(err):
		default:
			s.t.Errorf("unexpected error of a recovery: %v", err)
		}
	}
	got, err := r.do(context.Background(), p.serve)
	switch {
	case err == nil:
	case errors.Is(err, ErrGroupEmpty), errors.Is(err, ErrGroupUnknown):
		return true
	case passes(err):
		return false
	default:
		s.t.Errorf("unexpected error: %v", err)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := clientMessage{r.conversation, r.sender, r.id}
	if first, known := s.ledger[key]; known && first != got {
		s.t.Errorf("%v answered %+v first and %+v then", key, first, got)
	}
	if _, known := s.ledger[key]; !known {
		s.answered = append(s.answered, r)
	}
	s.ledger[key] = got
	return true
}

// passes reports whether an error is of the kind that the simulation makes.
func passes(err error) bool {
	for _, e := range []error{ErrGroupRenumbering, errCrashed, errLost, mailbox.ErrOutcomeUnknown, ErrConflict, mailbox.ErrStoreRestarted, ErrRecovering} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// cutPower kills all processes and loses a random part of what was not synced.
func (s *simulation) cutPower(d *powered) {
	s.mu.Lock()
	for _, p := range s.processes {
		p.kill()
	}
	s.mu.Unlock()
	s.world.Lock()
	defer s.world.Unlock()
	for _, p := range s.processes { // started since
		p.kill()
	}
	s.failures++
	d.fail(s.t, vfs.CrashCloneCfg{UnsyncedDataPercent: s.intn(101), RNG: rand.New(rand.NewPCG(uint64(s.intn(1<<30)), 2))})
}

// loseTail restarts the store without some of its last writes, most often a few.
// Nothing stops for it.
func (s *simulation) loseTail(d *lossy) {
	lose := s.intn(8)
	switch s.intn(6) {
	case 0:
		lose = s.intn(200)
	case 1:
		lose = 0
	}
	s.mu.Lock()
	s.failures++
	s.mu.Unlock()
	d.server.restart(lose)
}

// finish lets a healthy process recover and sweep, and compares everything.
func (s *simulation) finish() {
	t := s.t
	s.disaster()
	p := s.start(nil)
	require.NoError(t, p.serve.Recover(t.Context()))
	s.d.outbox.land(1 << 30)
	require.NoError(t, p.serve.Sweep(t.Context()))
	for _, r := range s.answered {
		got, err := r.do(t.Context(), p.serve)
		require.NoError(t, err)
		require.Equal(t, s.ledger[clientMessage{r.conversation, r.sender, r.id}], got, "a retry answers something else")
	}
	if s.lossy != nil {
		s.d.store = s.lossy.server.connect()
	}
	records, renumberings := 0, uint64(0)
	for _, id := range []string{"c", "g0", "g1"} {
		c := mailbox.Conversation{Tenant: "acme", ID: id}
		k := newChecker(t, s.d)
		k.conversation(c)
		records += int(k.last)
		st, err := p.serve.states.acquire(t.Context(), c)
		require.NoError(t, err)
		st.forget()
		require.NoError(t, p.serve.load(t.Context(), st))
		require.Equal(t, k.last, st.head.seq, "the head and the outbox end at the same seq")
		require.Nil(t, st.head.pending)
		renumberings += uint64(len(st.head.starts))
		p.serve.states.release(st)
		for key, row := range s.ledger {
			if key.conversation != c {
				continue
			}
			rec := k.byClient[[2]string{key.sender, key.id}]
			seq := max(row.commit.ConversationSeq, row.change.ConversationSeq)
			if seq == 0 {
				continue
			}
			require.NotNil(t, rec, "%v was answered with seq %d and is not in the outbox", key, seq)
			require.Equal(t, seq, rec.GetConversationSeq())
			require.Equal(t, max(row.commit.CommittedAt, row.change.CommittedAt), rec.GetCommittedAtMs())
			require.Equal(t, row.change.Version, rec.GetMembershipChange().GetMembershipVersion())
			if row.commit.ConversationSeq > 0 {
				require.Equal(t, row.commit.MessageID, rec.GetMessageId())
			}
		}
	}
	require.Greater(t, records, 30, "the simulation did something")
	t.Logf("%d records, %d renumberings, %d answers, %d failures of the store", records, renumberings, len(s.ledger), s.failures)
}
