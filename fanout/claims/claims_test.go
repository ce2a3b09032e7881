package claims

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func set(ps ...int32) []int32 { return ps }

func TestATableIsReadAsItWasWritten(t *testing.T) {
	tab := Table{Instances: []Instance{{Name: "a", Token: "t", Address: "http://x", Beat: 3, Own: set(0, 1), Standby: true}}, Claims: []Claim{{0, "t", 4}, {7, "", 1}}}
	b, err := tab.Encode()
	require.NoError(t, err)
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, tab, got)
	got, err = Decode(nil)
	require.NoError(t, err)
	require.Empty(t, got.Instances)
}

func TestATableThatIsNoneIsCorrupt(t *testing.T) {
	for _, s := range []string{
		"x", "{}", `{"version":2}`, `{"version":1}{}`, `{"version":1,"later":1}`, `{"version":1,"instances":[{"name":"a","beat":1}]}`,
		`{"version":1,"instances":[{"name":"b","token":"1","beat":1},{"name":"a","token":"2","beat":1}]}`,
		`{"version":1,"instances":[{"name":"a","token":"1","beat":1,"own":[2,1]}]}`,
		`{"version":1,"claims":[{"partition":-1,"epoch":1}]}`, `{"version":1,"claims":[{"partition":1,"epoch":0}]}`,
		`{"version":1,"claims":[{"partition":1,"epoch":1},{"partition":1,"epoch":1}]}`,
		`{"version":1,"instances":[{"name":"` + strings.Repeat("a", 300) + `","token":"1","beat":1}]}`,
	} {
		_, err := Decode([]byte(s))
		require.ErrorIs(t, err, mailbox.ErrCorrupt, s)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"instances":[{"name":"a","token":"1","beat":1,"own":[1,2]}],"claims":[{"partition":1,"token":"1","epoch":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tab, err := Decode(b)
		if err != nil {
			return
		}
		again, err := tab.Encode()
		require.NoError(t, err)
		got, err := Decode(again)
		require.NoError(t, err)
		require.Equal(t, len(tab.Claims), len(got.Claims))
		tab.Unheld(8)
	})
}

// A script of steps on a table, with a clock that the test moves.
type script struct {
	t     *testing.T
	table Table
	now   time.Duration
	obs   map[string]*observer
	in    map[string]*Instance
	free  map[string][]int32
	parts int
}

const term = 12 * time.Second

func newScript(t *testing.T, parts int) *script {
	return &script{t: t, obs: map[string]*observer{}, in: map[string]*Instance{}, free: map[string][]int32{}, parts: parts}
}

// step makes a step of a run of an instance; nil own: as before.
func (s *script) step(in Instance) (outcome, error) {
	o := s.obs[in.Token]
	if o == nil {
		o = &observer{term: term, seen: map[string]sight{}}
		s.obs[in.Token] = o
	}
	w := wish{me: in, release: s.free[in.Token]}
	if p := s.in[in.Token]; p != nil {
		w.joined, w.me.Beat = true, p.Beat
	}
	o.look(&s.table, s.now)
	out, err := step(&s.table, w, o, s.now)
	if err != nil {
		return out, err
	}
	if out.waits == "" {
		if in.Standby {
			takeOver(&out.next, in.Token, s.parts, w.release)
		}
		s.free[in.Token] = nil
		s.in[in.Token] = out.next.byToken(in.Token)
	}
	if out.wrote {
		b, err := out.next.Encode()
		require.NoError(s.t, err)
		s.table, err = Decode(b)
		require.NoError(s.t, err)
		o.look(&s.table, s.now)
	}
	return out, nil
}

func (s *script) must(in Instance) outcome {
	s.t.Helper()
	out, err := s.step(in)
	require.NoError(s.t, err)
	return out
}

func (s *script) holders() string {
	var out []string
	for p := range int32(s.parts) {
		name := s.table.Holder(p)
		if name == "" {
			name = "-"
		}
		out = append(out, name)
	}
	return strings.Join(out, ",")
}

func TestDisjointSetsAreHeldAndAGapIsNamed(t *testing.T) {
	s := newScript(t, 4)
	s.must(Instance{Name: "a", Token: "1", Own: set(0, 1)})
	require.Equal(t, set(2, 3), s.table.Unheld(4))
	s.must(Instance{Name: "b", Token: "2", Own: set(3)})
	require.Equal(t, "a,a,-,b", s.holders())
	require.Equal(t, set(2), s.table.Unheld(4))
}

func TestAnInstanceOfAnotherOutboxHoldsNothingOfThisOne(t *testing.T) {
	s := newScript(t, 2)
	s.must(Instance{Name: "a", Token: "1", Own: set(0), Partitions: 1})
	s.must(Instance{Name: "b", Token: "2", Own: set(1), Partitions: 2})
	require.Equal(t, set(0), s.table.Unheld(2))
	require.Empty(t, s.table.Unheld(1))
}

func TestASetThatMeetsALiveOnesIsRefused(t *testing.T) {
	for name, b := range map[string]Instance{
		"a partition": {Name: "b", Token: "2", Own: set(1, 2)},
		"the name":    {Name: "a", Token: "2", Own: set(3)},
	} {
		s := newScript(t, 4)
		a := Instance{Name: "a", Token: "1", Own: set(0, 1)}
		s.must(a)
		out := s.must(b) // it may be gone
		require.NotEmpty(t, out.waits, name)
		require.Equal(t, "a,a,-,-", s.holders(), name)
		s.now += term / 3
		s.must(a) // it is not
		_, err := s.step(b)
		require.ErrorIs(t, err, ErrOverlap, name)
		require.Equal(t, "a,a,-,-", s.holders(), name)
	}
}

func TestAKilledInstancesPartitionsGoToTheNextOneWithThemInItsSet(t *testing.T) {
	s := newScript(t, 2)
	s.must(Instance{Name: "a", Token: "1", Own: set(0, 1)})
	next := Instance{Name: "b", Token: "2", Own: set(0, 1)}
	for ; s.now < term; s.now += term / 4 {
		require.NotEmpty(t, s.must(next).waits, s.now)
		require.Equal(t, "a,a", s.holders())
	}
	require.Empty(t, s.must(next).waits)
	require.Equal(t, "b,b", s.holders())
	_, err := s.step(Instance{Name: "a", Token: "1", Own: set(0, 1)})
	require.ErrorIs(t, err, ErrTaken, "the first one was paused")
}

func TestARestartUnderTheSameNameGetsItsSetWhenTheFirstIsGone(t *testing.T) {
	s := newScript(t, 2)
	s.must(Instance{Name: "a", Token: "1", Own: set(0, 1)})
	require.NotEmpty(t, s.must(Instance{Name: "a", Token: "2", Own: set(0, 1)}).waits)
	s.now += term
	require.Empty(t, s.must(Instance{Name: "a", Token: "2", Own: set(0, 1)}).waits)
	require.Equal(t, "a,a", s.holders())
	require.Len(t, s.table.Instances, 1)
	require.EqualValues(t, 2, s.table.Claims[0].Epoch)
}

func TestAnEarlierRunOfThisProcessIsNotWaitedFor(t *testing.T) {
	s := newScript(t, 2)
	s.must(Instance{Name: "a", Token: "1", Own: set(0, 1)})
	s.obs["2"] = &observer{term: term, seen: map[string]sight{}, ended: map[string]bool{"1": true}}
	require.Empty(t, s.must(Instance{Name: "a", Token: "2", Own: set(0, 1)}).waits)
}

func TestAStandbyTakesWhatADeadInstanceHadAndGivesItBack(t *testing.T) {
	s := newScript(t, 3)
	a, b := Instance{Name: "a", Token: "1", Own: set(0, 1)}, Instance{Name: "b", Token: "2", Own: set(2), Standby: true}
	s.must(a)
	s.must(b)
	require.Equal(t, "a,a,b", s.holders(), "what has a live owner is left to it")
	for ; s.now < term; s.now += term / 4 {
		s.must(b)
		require.Equal(t, "a,a,b", s.holders())
	}
	s.must(b)
	require.Equal(t, "b,b,b", s.holders())
	// The owner comes back.
	a.Token = "3"
	require.Empty(t, s.must(a).waits)
	require.Equal(t, "b,b,b", s.holders(), "they are still being worked")
	require.Equal(t, set(0, 1), s.must(b).giveUp)
	s.free["2"] = set(1)
	s.must(b)
	require.Equal(t, "b,-,b", s.holders())
	s.must(a)
	require.Equal(t, "b,a,b", s.holders())
	s.free["2"] = set(0)
	s.must(b)
	s.must(a)
	require.Equal(t, "a,a,b", s.holders())
}

// Instances that are paused, slow, restarted and killed at any moment: no two ever
// trust one partition at the same time, and in the end each partition is held.
func TestNoTwoInstancesTrustOnePartition(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		const parts = 4
		type proc struct {
			Instance
			skew   time.Duration // what its clock shows more
			obs    *observer
			joined bool
			until  time.Duration
			held   map[int32]bool
			dead   bool
		}
		var (
			tab   Table
			now   time.Duration
			procs []*proc
			token int
		)
		sets := [][]int32{set(0, 1), set(2, 3), nil}
		start := func(i int) *proc {
			token++
			return &proc{
				Instance: Instance{Name: fmt.Sprint("p", i), Token: fmt.Sprint(token), Own: sets[i], Standby: i == 2 || i == 0},
				skew:     time.Duration(r.Int64N(int64(time.Hour))), obs: &observer{term: term, seen: map[string]sight{}}, held: map[int32]bool{},
			}
		}
		var all []*proc
		for i := range sets {
			procs = append(procs, start(i))
		}
		all = append(all, procs...)
		act := func(p *proc) {
			asked := now
			clock := func() time.Duration { return now + p.skew }
			read, err := tab.Encode()
			require.NoError(t, err)
			seen, err := Decode(read)
			require.NoError(t, err)
			p.obs.look(&seen, clock())
			if in := seen.byToken(p.Token); in != nil {
				p.Beat, p.joined = in.Beat, true
			}
			out, err := step(&seen, wish{me: p.Instance, joined: p.joined}, p.obs, clock())
			if errors.Is(err, ErrOverlap) || errors.Is(err, ErrTaken) {
				p.dead = true
				return
			}
			require.NoError(t, err)
			if out.waits != "" {
				if out.wrote {
					tab = out.next
				}
				return
			}
			if p.Standby {
				takeOver(&out.next, p.Token, parts, nil)
			}
			for _, g := range out.giveUp { // at once: nothing is worked here
				out.next.release(g, p.Token)
				delete(p.held, g)
			}
			tab = out.next
			if r.IntN(8) == 0 {
				return // the answer was lost: it knows nothing of the write
			}
			p.joined, p.until = true, asked+term*3/4
			clear(p.held)
			for _, h := range tab.heldBy(p.Token) {
				p.held[h] = true
			}
		}
		check := func() {
			holder := map[int32]string{}
			for _, p := range all {
				if p.dead || now >= p.until {
					continue
				}
				for h := range p.held {
					require.Empty(t, holder[h], "seed %d at %v: partition %d is trusted by %s too", seed, now, h, p.Name)
					holder[h] = p.Name
				}
			}
		}
		for range 200 {
			now += time.Duration(r.Int64N(int64(term / 4)))
			i := r.IntN(len(procs))
			switch r.IntN(20) {
			case 0: // killed and started again; or paused, and another run beside it
				procs[i] = start(i)
				all = append(all, procs[i])
			case 1: // an old run wakes up
				if p := all[r.IntN(len(all))]; !p.dead {
					act(p)
				}
			default:
				if !procs[i].dead {
					act(procs[i])
				} else {
					procs[i] = start(i)
					all = append(all, procs[i])
				}
			}
			check()
		}
		// Quiet: everybody beats.
		for range 60 {
			now += term / 6
			for i := range procs {
				if procs[i].dead {
					procs[i] = start(i)
					all = append(all, procs[i])
				}
				act(procs[i])
				check()
			}
		}
		require.Empty(t, tab.Unheld(parts), "seed %d", seed)
	}
}

func TestRangesAreShownShort(t *testing.T) {
	require.Equal(t, "0-2,5,7-8", Ranges(set(0, 1, 2, 5, 7, 8)))
	require.Empty(t, Ranges(nil))
}
