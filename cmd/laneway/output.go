package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"golang.org/x/term"

	"github.com/laneway/laneway/mailbox"
)

const (
	outputTable = "table"
	outputJSON  = "json"
)

// writeJSON prints one JSON document.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writeTable prints rows under a header, without lines, so that they are easy to
// cut and grep.
func writeTable(w io.Writer, header []string, rows [][]string) error {
	var b bytes.Buffer
	t := tablewriter.NewTable(&b,
		tablewriter.WithRendition(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		}),
		tablewriter.WithPadding(tw.Padding{Right: "  ", Overwrite: true}),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
	)
	cells := make([]any, len(header))
	for i, h := range header {
		cells[i] = h
	}
	t.Header(cells...)
	for _, r := range rows {
		for i := range r {
			r[i] = orDash(printable(r[i]))
		}
		if err := t.Append(r); err != nil {
			return err
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	// The library pads the last column too.
	for line := range bytes.Lines(b.Bytes()) {
		if _, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printable keeps text of others from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
}

// isTerminal reports whether w is a terminal that understands control sequences.
func (a *app) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && a.env("TERM", "dumb") != "dumb"
}

// seqText is a position as epoch:offset; "" for none.
func seqText(s uint64) string {
	if s == 0 {
		return ""
	}
	return mailbox.Seq(s).String()
}

// timeText is a time in UTC; "" for none.
func timeText(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// orDash fills an empty cell, so that columns can be counted.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
