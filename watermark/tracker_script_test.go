package watermark_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/watermark"
)

// TestTrackerScripts runs the scripts in testdata. Commands, one tracker a file:
//
//	new [start=SEQ] [lane=N:SEQ ...]     a tracker whose lanes are complete up to start
//	admit seq=SEQ lanes=L/CHUNKS,... [marked=N,...]
//	unexpanded seq=SEQ
//	expand seq=SEQ lanes=L/CHUNKS,... [marked=N,...]
//	observe f=SEQ
//	done seq=SEQ lane=L chunk=N
//	w lanes=L,...
//
// Each prints W of the lanes named last, and errors.
func TestTrackerScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var (
			tr    *watermark.Tracker
			lanes []mailbox.Lane
		)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			seq := func(key string) mailbox.Seq {
				var text string
				d.ScanArgs(t, key, &text)
				s, err := mailbox.ParseSeq(text)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return s
			}
			if d.HasArg("watch") {
				lanes = nil
				var text string
				d.ScanArgs(t, "watch", &text)
				for _, l := range strings.Split(text, "/") {
					n, err := strconv.Atoi(l)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					lanes = append(lanes, mailbox.Lane(n))
				}
			}
			var out strings.Builder
			var err error
			switch d.Cmd {
			case "new":
				var start [mailbox.LaneCount]mailbox.Seq
				if d.HasArg("start") {
					for lane := range start {
						start[lane] = seq("start")
					}
				}
				for _, a := range d.CmdArgs {
					if n, ok := strings.CutPrefix(a.Key, "start-"); ok {
						lane, convErr := strconv.Atoi(n)
						if convErr != nil {
							d.Fatalf(t, "%v", convErr)
						}
						start[lane] = seq(a.Key)
					}
				}
				tr = watermark.New(start)
			case "admit":
				m, marks := manifest(t, d)
				err = tr.Admit(seq("seq"), m, marks)
			case "unexpanded":
				err = tr.AdmitUnexpanded(seq("seq"))
			case "expand":
				m, marks := manifest(t, d)
				err = tr.Expand(seq("seq"), m, marks)
			case "observe":
				tr.Observe(seq("f"))
			case "done":
				var lane, chunk int
				d.ScanArgs(t, "lane", &lane)
				d.ScanArgs(t, "chunk", &chunk)
				if !tr.Done(mailbox.NewMarked(mailbox.ChunkRef{Seq: seq("seq"), Lane: mailbox.Lane(lane), Index: chunk})) {
					out.WriteString("nothing new\n")
				}
			case "w":
			default:
				d.Fatalf(t, "unknown command")
			}
			if err != nil {
				fmt.Fprintf(&out, "error: %v\n", err)
			}
			fmt.Fprintf(&out, "F=%s", tr.Frontier())
			for _, l := range lanes {
				fmt.Fprintf(&out, " W[%d]=%s", l, tr.W(l))
			}
			return out.String() + "\n"
		})
	})
}

// manifest reads lanes=L/CHUNKS,L/CHUNKS and marked=N,N.
func manifest(t *testing.T, d *datadriven.TestData) (*mailbox.Manifest, mailbox.ChunkSet) {
	t.Helper()
	m := &mailbox.Manifest{}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "lanes":
			for _, v := range a.Vals {
				l, n, ok := strings.Cut(v, "/")
				lane, err1 := strconv.Atoi(l)
				chunks, err2 := strconv.Atoi(n)
				if !ok || err1 != nil || err2 != nil {
					d.Fatalf(t, "lanes: want L/CHUNKS, got %q", v)
				}
				m.Lanes = append(m.Lanes, mailbox.LaneChunks{Lane: mailbox.Lane(lane), Chunks: chunks})
			}
		}
	}
	var marks mailbox.ChunkSet
	for _, a := range d.CmdArgs {
		if a.Key != "marked" {
			continue
		}
		marks = mailbox.NewChunkSet(m.Chunks())
		for _, v := range a.Vals {
			n, err := strconv.Atoi(v)
			if err != nil {
				d.Fatalf(t, "marked: %v", err)
			}
			marks.Add(n)
		}
	}
	return m, marks
}
