package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/schollz/progressbar/v3"

	"github.com/laneway/laneway/mailbox"
)

// badLine is a line that names no usable user.
type badLine struct {
	line int
	why  string
}

// parseUsers reads one user id a line. It reads on after a bad line, so that one
// run reports them all.
func parseUsers(in io.Reader) ([]string, []badLine, error) {
	var users []string
	var bad []badLine
	firstAt := make(map[string]int)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		id := strings.TrimSuffix(lines.Text(), "\r")
		if n == 1 {
			id = strings.TrimPrefix(id, "\ufeff")
		}
		if strings.HasPrefix(id, "#") || strings.TrimSpace(id) == "" {
			continue
		}
		switch at, twice := firstAt[id]; {
		case twice:
			bad = append(bad, badLine{n, fmt.Sprintf("repeats line %d", at)})
			continue
		case id != strings.TrimSpace(id):
			bad = append(bad, badLine{n, "has spaces before or after the user id"})
			continue
		}
		if err := mailbox.CheckID("user id", id); err != nil {
			bad = append(bad, badLine{n, err.Error()})
			continue
		}
		firstAt[id] = n
		users = append(users, id)
	}
	return users, bad, lines.Err()
}

// importProgress returns what shows an import's progress: a bar on a terminal, a
// line for each tenth elsewhere; nothing with --output json beyond the result.
func (a *app) importProgress(group string, total int) (progress func(sent int), finish func()) {
	if !a.isTerminal(a.err) {
		shown := -1
		return func(sent int) {
			if tenth := sent * 10 / total; tenth > shown && sent > 0 {
				shown = tenth
				fmt.Fprintf(a.err, "group %s: sent %d of %d users\n", group, sent, total)
			}
		}, func() {}
	}
	bar := progressbar.NewOptions(total,
		progressbar.OptionSetWriter(a.err), progressbar.OptionSetDescription("importing into "+printable(group)),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("users"),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
	)
	return func(sent int) {
		// A bar that cannot be drawn is no reason to stop an import. Its last step
		// waits for the server, which applies the change after the last user.
		_ = bar.Set(min(sent, total-1))
		if sent == total {
			bar.Describe("applying to " + printable(group))
		}
	}, func() { _ = bar.Finish() }
}
