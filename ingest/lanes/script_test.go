package lanes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/laneway/laneway/ingest/lanes"
	"github.com/laneway/laneway/mailbox"
)

// TestScripts runs the scripts in testdata against one scheduler a file, with
// claim_timeout 5 s and a turn of 30 s. The clock starts at 0 s. Commands:
//
//	add lane=L offset=N [entries=N] [workflow]
//	take max=N        the owner takes a batch
//	claim lane=L offset=N
//	release|next|done|degrade lane=L offset=N
//	tick at=SECONDS   moves the clock and lets it run
//
// Each prints its result and the state of every lane that is not empty.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := lanes.New(lanes.Config{ClaimTimeout: 5 * time.Second, Turn: 30 * time.Second})
		start := time.Unix(0, 0)
		now := start
		tasks := map[string]*lanes.Task{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			arg := func(key string, def int) int {
				if d.HasArg(key) {
					d.ScanArgs(t, key, &def)
				}
				return def
			}
			lane := mailbox.Lane(arg("lane", 0))
			seq := mailbox.Seq(1)<<48 | mailbox.Seq(arg("offset", 0))
			task := tasks[fmt.Sprint(lane, seq)]
			switch d.Cmd {
			case "add":
				task = &lanes.Task{Seq: seq, Lane: lane, Entries: arg("entries", 1), Workflow: d.HasArg("workflow")}
				tasks[fmt.Sprint(lane, seq)] = task
				s.Add(now, task)
			case "take":
				for _, t := range s.Take(now, nil, arg("max", 100)) {
					fmt.Fprintf(&out, "run lane %d %s\n", t.Lane, t.Seq)
				}
			case "claim":
				switch t, granted := s.Claim(now, lane, seq); {
				case t == nil:
					out.WriteString("not in its lane\n")
				case granted:
					out.WriteString("granted\n")
				default:
					fmt.Fprintf(&out, "wait, it is %s\n", t.State())
				}
			case "release":
				s.Release(task)
			case "next":
				s.NextChunk(now, task)
			case "done", "degrade":
				if !s.Done(now, task) {
					out.WriteString("not in its lane\n")
				}
			case "tick":
				now = start.Add(time.Duration(arg("at", 0)) * time.Second)
				for _, t := range s.Tick(now) {
					fmt.Fprintf(&out, "degraded lane %d %s\n", t.Lane, t.Seq)
				}
			default:
				d.Fatalf(t, "unknown command")
			}
			for lane := range mailbox.Lane(mailbox.LaneCount) {
				if h := s.Head(lane); h != nil {
					fmt.Fprintf(&out, "lane %d: %s %s", lane, h.Seq, h.State())
					if n := s.LaneLen(lane) - 1; n > 0 {
						fmt.Fprintf(&out, " (+%d)", n)
					}
					out.WriteString("\n")
				}
			}
			if dl := s.Deadline(); !dl.IsZero() {
				fmt.Fprintf(&out, "clock at %ds\n", dl.Unix())
			}
			if out.Len() == 0 {
				out.WriteString("idle\n")
			}
			return out.String()
		})
	})
}
