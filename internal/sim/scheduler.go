package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors that calls meet here.
var (
	errCrashed = errors.New("the process is gone")
	errLost    = errors.New("the answer is lost")
)

// outcome is what becomes of a call.
type outcome int

const (
	applied     outcome = iota
	refused             // it fails, and nothing was done
	answerLost          // it fails, and was done
	crashBefore         // the process ends, nothing was done
	crashAfter          // the process ends, and it was done
)

func (o outcome) String() string {
	return [...]string{"", "refused", "answer lost", "crash before", "crash after"}[o]
}

// call is a call on its way out of a process.
type call struct {
	by    *process
	what  string
	write bool
	ready func() bool // nil: always
	do    func()      // carries it out
	done  chan outcome
	// gone: the caller waits no longer. The call may still be carried out.
	gone bool
	late bool // it is on its way until it is ready
}

// scheduler holds the calls that wait.
type scheduler struct {
	mu      sync.Mutex
	rng     *rand.Rand
	waiting []*call
	faults  bool
	log     []string // what was done, for whoever looks at a seed that fails
	keep    bool
}

func (s *scheduler) intn(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *scheduler) note(format string, args ...any) {
	if s.keep {
		s.log = append(s.log, fmt.Sprintf(format, args...))
	}
}

// pass waits until the scheduler has carried the call out, or decided that it
// never will be. A caller whose context ends leaves it behind.
func (s *scheduler) pass(ctx context.Context, c *call) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return refused, err
	}
	c.done = make(chan outcome, 1)
	s.mu.Lock()
	if c.by.dead {
		s.mu.Unlock()
		return crashBefore, nil
	}
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	select {
	case o := <-c.done:
		return o, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case o := <-c.done: // just now
		return o, nil
	default:
	}
	c.gone = true
	return refused, ctx.Err()
}

// pick takes a call that can go on, or nil when none can.
func (s *scheduler) pick() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The order in which goroutines got here is not the seed's.
	slices.SortStableFunc(s.waiting, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.by.name, b.by.name), strings.Compare(a.what, b.what))
	})
	var can []int
	for i, c := range s.waiting {
		if !c.by.paused && (c.ready == nil || c.gone && !c.late || c.ready()) {
			can = append(can, i)
		}
	}
	if len(can) == 0 {
		return nil
	}
	i := can[s.rng.IntN(len(can))]
	c := s.waiting[i]
	s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
	return c
}

// fate draws what becomes of a call.
func (s *scheduler) fate(c *call) outcome {
	if !s.faults {
		return applied
	}
	n := s.intn(1000)
	if c.gone { // a request in flight
		if !c.write || n < 500 {
			return refused
		}
		return applied
	}
	switch {
	case n < 4 && c.by.mortal:
		return crashBefore
	case n < 8 && c.by.mortal:
		return crashAfter
	case n < 20:
		return refused
	case n < 40:
		return answerLost
	}
	return applied
}

// step lets one call go on and reports whether there was one.
func (s *scheduler) step() bool {
	c := s.pick()
	if c == nil {
		return false
	}
	o := s.fate(c)
	s.note("%s: %s %s", c.by.name, c.what, o)
	if o == applied || o == answerLost || o == crashAfter {
		c.do()
	}
	if o == crashBefore || o == crashAfter {
		c.by.kill()
	}
	c.done <- o
	return true
}

// drop ends the calls of a process that ended: some had left it and are carried
// out all the same, records for the log perhaps long after.
func (s *scheduler) drop(p, ghost *process) {
	s.mu.Lock()
	var mine, others []*call
	for _, c := range s.waiting {
		if c.by == p {
			mine = append(mine, c)
		} else {
			others = append(others, c)
		}
	}
	s.waiting = others
	s.mu.Unlock()
	for _, c := range mine {
		if c.write && s.faults && strings.HasPrefix(c.what, publishing) && s.intn(4) > 0 {
			arrives := time.Now().Add(time.Duration(s.intn(15_000)) * time.Millisecond)
			late := &call{by: ghost, what: c.what + " of " + p.name, write: true, do: c.do, done: make(chan outcome, 1), gone: true, late: true}
			late.ready = func() bool { return !time.Now().Before(arrives) }
			s.mu.Lock()
			s.waiting = append(s.waiting, late)
			s.mu.Unlock()
		} else if c.write && s.intn(3) == 0 {
			s.note("%s: %s, in flight when it ended", p.name, c.what)
			c.do()
		}
		c.done <- crashAfter
	}
}
