package watermark_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/watermark"
)

// model is the tracker as one would write it without thinking of speed: every
// chunk of every dispatch, looked at again for each question.
type model struct {
	start [mailbox.LaneCount]mailbox.Seq
	f     mailbox.Seq
	open  map[mailbox.ChunkRef]bool
	all   map[mailbox.Seq]bool
}

func (m *model) w(lane mailbox.Lane) mailbox.Seq {
	w := m.f
	for c := range m.open {
		if c.Lane == lane {
			w = min(w, c.Seq.Before())
		}
	}
	for s := range m.all {
		w = min(w, s.Before())
	}
	return max(w, m.start[lane])
}

// sorted returns the open chunks in a fixed order: a failing run must repeat.
func (m *model) sorted() []mailbox.ChunkRef {
	return slices.SortedFunc(maps.Keys(m.open), func(a, b mailbox.ChunkRef) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Index, b.Index))
	})
}

// TestTrackerAgreesWithModel drives tracker and model with the same random
// events and compares W of all lanes after each, and that W never goes back.
func TestTrackerAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{open: map[mailbox.ChunkRef]bool{}, all: map[mailbox.Seq]bool{}}
		for lane := range m.start {
			m.start[lane] = mailbox.Seq(1)<<48 | mailbox.Seq(rapid.IntRange(0, 5).Draw(t, "start"))
		}
		tr := watermark.New(m.start)
		epoch, offset := mailbox.Epoch(1), int64(0)
		var before [mailbox.LaneCount]mailbox.Seq
		draw := func() *mailbox.Manifest {
			man := &mailbox.Manifest{}
			for lane := range mailbox.Lane(6) { // a few lanes meet often
				if n := rapid.IntRange(-2, 3).Draw(t, "chunks"); n > 0 {
					man.Lanes = append(man.Lanes, mailbox.LaneChunks{Lane: lane, Chunks: n})
				}
			}
			return man
		}
		add := func(seq mailbox.Seq, man *mailbox.Manifest) {
			for _, l := range man.Lanes {
				for i := range l.Chunks {
					m.open[mailbox.ChunkRef{Seq: seq, Lane: l.Lane, Index: i}] = true
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				if rapid.IntRange(0, 9).Draw(t, "takeover") == 0 {
					epoch++
					offset++
				}
				seq := mailbox.Seq(epoch)<<48 | mailbox.Seq(offset)
				offset += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
				if rapid.IntRange(0, 9).Draw(t, "unreadable") == 0 {
					if err := tr.AdmitUnexpanded(seq); err != nil {
						t.Fatal(err)
					}
					m.all[seq] = true
				} else {
					man := draw()
					if err := tr.Admit(seq, man, nil); err != nil {
						t.Fatal(err)
					}
					add(seq, man)
				}
				tr.Observe(seq)
				m.f = seq
			case 2, 3:
				if len(m.open) > 0 {
					c := rapid.SampledFrom(m.sorted()).Draw(t, "chunk")
					if !tr.Done(mailbox.NewMarked(c)) {
						t.Fatalf("%v was open", c)
					}
					if tr.Done(mailbox.NewMarked(c)) {
						t.Fatalf("%v counted twice", c)
					}
					delete(m.open, c)
				}
			case 4:
				if len(m.all) > 0 {
					seq := rapid.SampledFrom(slices.Sorted(maps.Keys(m.all))).Draw(t, "seq")
					man := draw()
					if err := tr.Expand(seq, man, nil); err != nil {
						t.Fatal(err)
					}
					delete(m.all, seq)
					add(seq, man)
				}
			}
			for lane := range mailbox.Lane(mailbox.LaneCount) {
				got, want := tr.W(lane), m.w(lane)
				if got != want {
					t.Fatalf("W[%d] = %s, the model says %s", lane, got, want)
				}
				if got < before[lane] {
					t.Fatalf("W[%d] went back from %s to %s", lane, before[lane], got)
				}
				before[lane] = got
			}
		}
	})
}
