package lanes

import (
	"math/bits"
	"sort"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Config holds the scheduler's clocks.
type Config struct {
	// ClaimTimeout is how long a workflow's task waits at the head of its lane
	// for its activity. After one expiry nobody waits again until a claim
	// arrives: the engine is down or drowning.
	ClaimTimeout time.Duration
	// Turn is how long a task may hold the head of its lane once it is worked
	// on. After that it is degraded: it frees the lane.
	Turn time.Duration
}

// State is where a task stands.
type State uint8

// The states of a task that is in a lane.
const (
	Queued  State = iota // behind the head
	Ready                // at the head, the owner is to run it
	Waiting              // at the head, waits for its activity to claim it
	Running              // the owner runs it
	Claimed              // an activity runs it
	Held                 // its activity's attempt failed; the turn is kept for the next
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"queued", "ready", "waiting", "running", "claimed", "held"}[s]
}

// Task is one dispatch's work in one lane.
type Task struct {
	Seq     mailbox.Seq
	Lane    mailbox.Lane
	Entries int
	// Workflow: an activity claims the turn. Otherwise the owner runs it.
	Workflow bool
	// Work is the caller's.
	Work any

	state   State
	until   time.Time // end of the wait (Waiting) or of the turn (Running, Claimed, Held)
	claimed bool      // an activity had the turn once: it will be back
}

// State returns where the task stands.
func (t *Task) State() State { return t.state }

// SeenClaim reports whether an activity has ever claimed the task's turn.
func (t *Task) SeenClaim() bool { return t.claimed }

// Scheduler holds the lanes of one shard. It is not safe for concurrent use.
type Scheduler struct {
	cfg        Config
	lanes      [mailbox.LaneCount][]*Task
	ready      uint64 // lanes whose head is Ready
	timed      uint64 // lanes whose head has a deadline
	engineDown bool
	next       int // lane that Take looks at first, so that none starves
	tasks      int
	entries    int
}

// New returns an empty scheduler.
func New(cfg Config) *Scheduler { return &Scheduler{cfg: cfg} }

// Len returns how many tasks and entries are in the lanes.
func (s *Scheduler) Len() (tasks, entries int) { return s.tasks, s.entries }

// LaneLen returns how many tasks a lane holds.
func (s *Scheduler) LaneLen(lane mailbox.Lane) int { return len(s.lanes[lane]) }

// Head returns the task at the head of a lane, or nil.
func (s *Scheduler) Head(lane mailbox.Lane) *Task {
	if len(s.lanes[lane]) == 0 {
		return nil
	}
	return s.lanes[lane][0]
}

// EngineDown reports whether the last wait for a claim ran out.
func (s *Scheduler) EngineDown() bool { return s.engineDown }

// Add puts a task into its lane, by seq. A task that comes late (its audience
// was not known) goes before those above it that are still queued.
func (s *Scheduler) Add(now time.Time, t *Task) {
	q := s.lanes[t.Lane]
	i := len(q)
	for i > 0 && q[i-1].Seq > t.Seq && q[i-1].state == Queued {
		i--
	}
	q = append(q, nil)
	copy(q[i+1:], q[i:])
	q[i] = t
	s.lanes[t.Lane] = q
	s.tasks++
	s.entries += t.Entries
	t.state = Queued
	if i == 0 {
		s.activate(now, t)
	}
}

// activate gives the head of a lane its first state.
func (s *Scheduler) activate(now time.Time, t *Task) {
	bit := uint64(1) << t.Lane
	s.ready &^= bit
	s.timed &^= bit
	switch {
	case !t.Workflow:
		t.state = Ready
		s.ready |= bit
	case s.engineDown:
		t.state = Ready
		s.ready |= bit
	default:
		t.state = Waiting
		t.until = now.Add(s.cfg.ClaimTimeout)
		s.timed |= bit
	}
}

// Take hands out work for the owner: from each lane whose head is ready, the
// run of tasks from the head on that the owner is to run, in seq order, until
// the batch holds about max entries. The tasks stay in their lanes until Done
// or Degrade.
func (s *Scheduler) Take(now time.Time, dst []*Task, maxEntries int) []*Task {
	n := 0
	for s.ready != 0 && n < maxEntries {
		lane := (bits.TrailingZeros64(bits.RotateLeft64(s.ready, -s.next)) + s.next) % mailbox.LaneCount
		s.next = (lane + 1) % mailbox.LaneCount
		bit := uint64(1) << lane
		s.ready &^= bit
		s.timed |= bit
		for i, t := range s.lanes[lane] {
			if t.state != Ready && (t.state != Queued || t.Workflow) {
				break
			}
			if i > 0 && n >= maxEntries {
				break
			}
			t.state = Running
			t.until = now.Add(s.cfg.Turn)
			n += t.Entries
			dst = append(dst, t)
		}
	}
	return dst
}

// Claim is an activity asking for the turn of (lane, seq). granted says that it
// has it. Otherwise t is the task that it waits for (behind others, or at work
// already), to ask again when the lane moved; or nil when the lane has no such
// task (any more).
func (s *Scheduler) Claim(now time.Time, lane mailbox.Lane, seq mailbox.Seq) (t *Task, granted bool) {
	s.engineDown = false
	t = s.Find(lane, seq)
	if t == nil {
		return nil, false
	}
	switch t.state {
	case Waiting, Ready:
		t.until = now.Add(s.cfg.Turn)
	case Held: // the turn goes on, it does not start again
	default:
		return t, false
	}
	t.state = Claimed
	t.claimed = true
	s.ready &^= 1 << lane
	s.timed |= 1 << lane
	return t, true
}

// Release gives a claimed turn back after a failed attempt: the task stays at
// the head for the activity's next attempt, until its turn ends.
func (s *Scheduler) Release(t *Task) {
	if t.state == Claimed {
		t.state = Held
	}
}

// NextChunk says that a claimed task finished one of its chunks and has more:
// it waits for the claim of the next, with clocks of its own.
func (s *Scheduler) NextChunk(now time.Time, t *Task) {
	if t.state == Claimed {
		s.activate(now, t)
	}
}

// Done removes a finished task and gives the lane's next its turn. It reports
// whether the task was still in its lane.
func (s *Scheduler) Done(now time.Time, t *Task) bool { return s.remove(now, t) }

// Degrade removes a task that failed for good or outlived its turn, so that
// the lane goes on. It reports whether the task was still in its lane.
func (s *Scheduler) Degrade(now time.Time, t *Task) bool { return s.remove(now, t) }

func (s *Scheduler) remove(now time.Time, t *Task) bool {
	q := s.lanes[t.Lane]
	i := 0
	if len(q) == 0 || q[0] != t {
		if i = s.index(t.Lane, t.Seq); i < 0 || q[i] != t {
			return false
		}
	}
	if i == 0 {
		q[0] = nil
		s.lanes[t.Lane] = q[1:]
	} else {
		copy(q[i:], q[i+1:])
		q[len(q)-1] = nil
		s.lanes[t.Lane] = q[:len(q)-1]
	}
	s.tasks--
	s.entries -= t.Entries
	if i == 0 {
		bit := uint64(1) << t.Lane
		s.ready &^= bit
		s.timed &^= bit
		if next := s.Head(t.Lane); next != nil {
			switch next.state {
			case Queued:
				s.activate(now, next)
			case Running: // taken in the same batch; its clock starts with its turn
				next.until = now.Add(s.cfg.Turn)
				s.timed |= bit
			}
		}
	}
	return true
}

// Tick lets the clocks run: waits that are over make their task the owner's,
// turns that are over degrade theirs. It returns the degraded tasks, which are
// out of their lanes.
func (s *Scheduler) Tick(now time.Time) (degraded []*Task) {
	for m := s.timed; m != 0; m &= m - 1 {
		lane := mailbox.Lane(bits.TrailingZeros64(m))
		for {
			t := s.Head(lane)
			if t == nil || s.timed&(1<<lane) == 0 || t.until.After(now) {
				break
			}
			if t.state == Waiting {
				s.engineDown = true
				s.activate(now, t)
				continue
			}
			s.remove(now, t)
			degraded = append(degraded, t)
		}
	}
	if s.engineDown {
		// Nobody else waits for an engine that does not answer.
		for m := s.timed; m != 0; m &= m - 1 {
			if t := s.Head(mailbox.Lane(bits.TrailingZeros64(m))); t != nil && t.state == Waiting {
				s.activate(now, t)
			}
		}
	}
	return degraded
}

// Deadline returns the earliest time at which Tick has something to do; the
// zero time when it never has.
func (s *Scheduler) Deadline() time.Time {
	var d time.Time
	for m := s.timed; m != 0; m &= m - 1 {
		if t := s.Head(mailbox.Lane(bits.TrailingZeros64(m))); t != nil && (d.IsZero() || t.until.Before(d)) {
			d = t.until
		}
	}
	return d
}

// HasReady reports whether Take would return something.
func (s *Scheduler) HasReady() bool { return s.ready != 0 }

// Find returns the task of (lane, seq), or nil when the lane has none.
func (s *Scheduler) Find(lane mailbox.Lane, seq mailbox.Seq) *Task {
	if i := s.index(lane, seq); i >= 0 {
		return s.lanes[lane][i]
	}
	return nil
}

// index finds a task by seq. The queue is ascending but for a head that was
// already at work when an older task came late.
func (s *Scheduler) index(lane mailbox.Lane, seq mailbox.Seq) int {
	q := s.lanes[lane]
	if len(q) == 0 {
		return -1
	}
	if q[0].Seq == seq {
		return 0
	}
	i := 1 + sort.Search(len(q)-1, func(i int) bool { return q[i+1].Seq >= seq })
	if i < len(q) && q[i].Seq == seq {
		return i
	}
	for i := range q { // behind several running ones
		if q[i].Seq == seq {
			return i
		}
	}
	return -1
}
