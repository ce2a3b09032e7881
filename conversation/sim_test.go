package conversation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

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
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	for seed := uint64(1); seed <= uint64(*simSeeds); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { simulate(t, seed) })
	}
}

const (
	simProcesses = 3
	simClients   = 6
	simRequests  = 40 // of each client
)

type simulation struct {
	t *testing.T
	d *powered

	mu  sync.Mutex
	rng *rand.Rand
	// world is held shared by every request and alone by a power failure.
	world     sync.RWMutex
	processes [simProcesses]*process
	failures  int

	ledger map[clientMessage]answer // the first answer to each request
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
func (s *simulation) next(int, string) fault {
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

func simulate(t *testing.T, seed uint64) {
	s := &simulation{t: t, d: newPowered(t, t.Context()), rng: seeded(seed), ledger: map[clientMessage]answer{}}
	defer s.d.close()
	for i := range s.processes {
		s.processes[i] = startProcess(t, s.d.deployment, s.next)
	}
	var wg sync.WaitGroup
	for client := range simClients {
		wg.Go(func() { s.client(client) })
	}
	wg.Wait()
	s.finish()
}

func (s *simulation) client(n int) {
	for i := range simRequests {
		r := s.draw(fmt.Sprintf("client-%d", n), fmt.Sprintf("r%d", i))
		for range 1 + s.intn(12) { // then the client gives up; its request may still take effect
			if s.intn(150) == 0 {
				s.cutPower()
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
	switch s.intn(8) {
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
	s.mu.Lock()
	p := s.processes[i]
	if p.crashed() {
		p = startProcess(s.t, s.d.deployment, s.next)
		s.processes[i] = p
	}
	s.mu.Unlock()
	if s.intn(20) == 0 {
		_ = p.serve.Sweep(context.Background()) // it meets faults too
	}
	got, err := r.do(context.Background(), p.serve)
	switch {
	case err == nil:
	case errors.Is(err, ErrGroupEmpty), errors.Is(err, ErrGroupUnknown):
		return true
	case errors.Is(err, errCrashed), errors.Is(err, errLost), errors.Is(err, mailbox.ErrOutcomeUnknown), errors.Is(err, ErrConflict):
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
	s.ledger[key] = got
	return true
}

// cutPower kills all processes and loses a random part of what was not synced.
func (s *simulation) cutPower() {
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
	s.d.fail(s.t, vfs.CrashCloneCfg{UnsyncedDataPercent: s.intn(101), RNG: rand.New(rand.NewPCG(uint64(s.intn(1<<30)), 2))})
}

// finish lets a healthy process sweep and compares everything.
func (s *simulation) finish() {
	t := s.t
	s.cutPower()
	p := startProcess(t, s.d.deployment, nil)
	require.NoError(t, p.serve.Sweep(t.Context()))
	records := 0
	for _, id := range []string{"c", "g0", "g1"} {
		c := mailbox.Conversation{Tenant: "acme", ID: id}
		k := newChecker(t, s.d.deployment)
		k.conversation(c)
		records += int(k.last)
		st, err := p.serve.states.acquire(t.Context(), c)
		require.NoError(t, err)
		st.forget()
		require.NoError(t, p.serve.load(t.Context(), st))
		require.Equal(t, k.last, st.head.seq, "the head and the outbox end at the same seq")
		require.Nil(t, st.head.pending)
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
	t.Logf("%d records, %d answers, %d power failures", records, len(s.ledger), s.failures)
}
