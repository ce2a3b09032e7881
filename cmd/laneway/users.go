package main

import (
	"bufio"
	"bytes"
	"errors"
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
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		id, rest, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return users, bad, nil
		}
		if err != nil {
			return nil, nil, err
		}
		id = strings.TrimSuffix(id, "\r")
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
		case rest > 0:
			bad = append(bad, badLine{n, fmt.Sprintf("the line has %d bytes, a user id at most %d", len(id)+rest, mailbox.MaxIDBytes)})
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
}

// readLine returns a line without its end. Of one that is longer than the
// reader's buffer, and so no id, it returns the beginning and how many bytes
// come after. io.EOF comes alone, after the last line.
func readLine(r *bufio.Reader) (line string, rest int, err error) {
	b, err := r.ReadSlice('\n')
	line = strings.TrimSuffix(string(b), "\n")
	for errors.Is(err, bufio.ErrBufferFull) {
		b, err = r.ReadSlice('\n')
		rest += len(bytes.TrimSuffix(b, []byte("\n")))
	}
	if errors.Is(err, io.EOF) && (len(b) > 0 || line != "") {
		err = nil
	}
	return line, rest, err
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
