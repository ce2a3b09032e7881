package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/mailbox"
)

// fewLanes is up to how many lanes to do are named one by one.
const fewLanes = 9

// describe brings the details that the Web UI shows up to date. They cost no
// history.
func (d *dispatch) describe(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, d.text())
}

// text says how far the dispatch is. Entries are counted from the total down: a
// run that was attached has the unfinished lanes only.
func (d *dispatch) text() string {
	var todo []mailbox.Lane
	left := 0
	for _, lane := range d.lanes {
		if lane.open() || lane.gaveUp() {
			todo = append(todo, lane.info.Lane)
			left += lane.info.Entries
		}
	}
	if len(todo) == 0 {
		return allDurable(len(d.lanes), "lane")
	}
	slow := d.slowLanes()
	none := "none"
	if len(slow) > 0 {
		none = thousands(len(slow))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s durable (%s of %s), %d to do, %s slow.\n",
		len(d.lanes)-len(todo), counted(len(d.lanes), "lane"),
		thousands(max(d.in.Entries-left, 0)), counted(d.in.Entries, "entry"), len(todo), none)
	if len(todo) <= fewLanes && len(todo) > len(slow) {
		fmt.Fprintf(&b, "\nTo do: %s.\n", listed(todo))
	}
	if len(slow) > 0 {
		b.WriteString("\nSlow:\n\n")
	}
	for _, s := range GroupSlow(slow) {
		fmt.Fprintf(&b, "- %s: %s\n", s.Names(), s.Error)
	}
	return b.String()
}
