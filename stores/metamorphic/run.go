package metamorphic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/metamorphic/naive"
	"github.com/laneway/laneway/stores/storetest"
)

// Entrant is a store that takes part in a run.
type Entrant struct {
	Name string
	Open storetest.Open
}

// Difference is where a store and the model part.
type Difference struct {
	Step     int
	Op       *Step
	Store    string
	Got      string
	Expected string
}

// String tells it without the lines that are the same.
func (d *Difference) String() string {
	got, want := strings.Split(d.Got, "\n"), strings.Split(d.Expected, "\n")
	same := 0
	for same < len(got) && same < len(want) && got[same] == want[same] {
		same++
	}
	line := func(lines []string) string {
		if same < len(lines) && lines[same] != "" {
			return lines[same]
		}
		return "(nothing more)"
	}
	return fmt.Sprintf("step %d, %s: line %d of %s is\n  %s\nand of the model\n  %s", d.Step, d.Op.Op, same+1, d.Store, line(got), line(want))
}

// Model is the naive store as an entrant.
var Model = Entrant{"model", func(_ *testing.T, c storetest.Config) *storetest.Subject {
	s := naive.New(naive.Options{ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now})
	same := func() mailbox.Store { return s }
	return &storetest.Subject{Store: s, Reopen: same, Crash: same, Expire: func() error {
		s.Expire()
		return nil
	}}
}}

// Run runs a history on the model and on the stores side by side, and returns the
// first difference, nil for none.
func Run(t *testing.T, h *History, entrants ...Entrant) *Difference {
	t.Helper()
	clock := storetest.NewClock()
	var players []*player
	for _, e := range append([]Entrant{Model}, entrants...) {
		players = append(players, newPlayer(e.Name, e.Open(t, Config(clock))))
	}
	spent := make([]time.Duration, len(players))
	answers := make([]string, len(players))
	for i := range h.Steps {
		s := &h.Steps[i]
		if s.Op == opClock {
			clock.Add(time.Duration(s.Ms) * time.Millisecond)
		}
		for j, p := range players {
			begin := time.Now()
			answers[j] = p.answer(t.Context(), s)
			spent[j] += time.Since(begin)
		}
		for j := range players {
			if answers[j] != answers[0] {
				return &Difference{i, s, players[j].name, answers[j], answers[0]}
			}
		}
	}
	for j, p := range players {
		t.Logf("%d steps: %s took %s", len(h.Steps), p.name, spent[j].Round(time.Millisecond))
	}
	return nil
}

// Shrink removes steps for as long as what is left still shows a difference of the
// same store, in at most tries runs.
func Shrink(t *testing.T, h *History, d *Difference, tries int, entrants ...Entrant) (*History, *Difference) {
	t.Helper()
	steps := h.Steps[:d.Step+1]
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at < len(steps)-1 && tries > 0; tries-- {
			end := min(at+size, len(steps)-1) // never the step that differs
			rest := append(append([]Step(nil), steps[:at]...), steps[end:]...)
			if again := try(t, &History{Steps: rest}, entrants); again != nil && again.Store == d.Store {
				steps, d = rest[:again.Step+1], again
			} else {
				at = end
			}
		}
	}
	return &History{Found: d.String(), Steps: steps}, d
}

// try runs a part of a history in a test of its own, so that its stores end with it.
func try(t *testing.T, h *History, entrants []Entrant) (d *Difference) {
	t.Run("shrink", func(t *testing.T) { d = Run(t, h, entrants...) })
	return d
}

// Play runs a history on one store, for tests that need a store with a past. It
// releases all shards at the end, and returns the store, which a step may have
// reopened.
func Play(t *testing.T, h *History, clock *storetest.Clock, s *storetest.Subject) mailbox.Store {
	t.Helper()
	p := newPlayer("store", s)
	for i := range h.Steps {
		if h.Steps[i].Op == opClock {
			clock.Add(time.Duration(h.Steps[i].Ms) * time.Millisecond)
		}
		p.answer(t.Context(), &h.Steps[i])
	}
	for n := range mailbox.Shard(shards) {
		if own, ok := p.owner(n, false); ok {
			if err := p.store.ReleaseLease(t.Context(), own); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p.store
}

// Config is what the stores of a history are opened with.
func Config(clock *storetest.Clock) storetest.Config {
	return storetest.Config{ShardCount: shards, RetentionDays: retention, Now: clock.Now}
}
