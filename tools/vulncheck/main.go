// Command vulncheck reads govulncheck's JSON from standard input and holds it
// against a list of explained exceptions: a vulnerability that the code calls
// and the list doesn't name is an error.
//
//	govulncheck -format json ./... | vulncheck tools/vulncheck/allowed.txt
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: govulncheck -format json ./... | vulncheck ALLOWED")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(list string, in io.Reader, out io.Writer) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	allowed, err := readAllowed(text)
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	found, err := readFindings(in)
	if err != nil {
		return err
	}
	return report(out, allowed, found)
}

// exception is a line of the list.
type exception struct{ module, fixed, reason string }

// readAllowed reads the list: id, module, fixed version, reason.
func readAllowed(text []byte) (map[string]exception, error) {
	allowed := map[string]exception{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " ", 4)
		if len(f) < 4 {
			return nil, fmt.Errorf("line %d: want an id, a module, a version and a reason", i+1)
		}
		allowed[f[0]] = exception{module: f[1], fixed: f[2], reason: f[3]}
	}
	return allowed, nil
}

// finding is a vulnerability in something that the code uses.
type finding struct {
	module, version, fixed string
	summary                string
	called                 bool   // else the package is only imported
	call                   string // where the code calls it
}

// message is the part of govulncheck's JSON that matters here.
type message struct {
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV   string  `json:"osv"`
		Fixed string  `json:"fixed_version"`
		Trace []frame `json:"trace"`
	} `json:"finding"`
}

type frame struct {
	Module   string `json:"module"`
	Version  string `json:"version"`
	Package  string `json:"package"`
	Function string `json:"function"`
	Position *struct {
		Filename string `json:"filename"`
		Line     int    `json:"line"`
	} `json:"position"`
}

// readFindings reads the vulnerabilities by id. One that is only in a required
// module, of which nothing is imported, is none.
func readFindings(in io.Reader) (map[string]*finding, error) {
	found, summaries := map[string]*finding{}, map[string]string{}
	messages := 0
	for d := json.NewDecoder(in); ; messages++ {
		var m message
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("govulncheck's output: %w", err)
		}
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 || m.Finding.Trace[0].Package == "" {
			continue
		}
		vulnerable := m.Finding.Trace[0]
		f := found[m.Finding.OSV]
		if f == nil {
			f = &finding{module: vulnerable.Module, version: vulnerable.Version, fixed: m.Finding.Fixed}
			found[m.Finding.OSV] = f
		}
		if vulnerable.Function != "" && !f.called {
			f.called = true
			f.call = callSite(m.Finding.Trace)
		}
	}
	if messages == 0 {
		return nil, errors.New("govulncheck printed nothing")
	}
	for id, f := range found {
		f.summary = summaries[id]
	}
	return found, nil
}

// callSite is the outermost place of a trace, which is in our own code.
func callSite(trace []frame) string {
	last := trace[len(trace)-1]
	if last.Position == nil {
		return last.Package + "." + last.Function
	}
	return fmt.Sprintf("%s:%d", last.Position.Filename, last.Position.Line)
}

func report(out io.Writer, allowed map[string]exception, found map[string]*finding) error {
	var text bytes.Buffer
	refused := 0
	for _, id := range slices.Sorted(maps.Keys(found)) {
		f := found[id]
		e, ok := allowed[id]
		switch {
		case ok && e.module == f.module && f.called:
			fmt.Fprintf(&text, "allowed  %s %s, fixed in %s: %s\n", id, f.module, f.fixed, e.reason)
		case f.called:
			refused++
			fmt.Fprintf(&text, "REFUSED  %s %s@%s, fixed in %s: %s\n         called from %s\n", id, f.module, f.version, orNone(f.fixed), f.summary, f.call)
		case !ok:
			fmt.Fprintf(&text, "unused   %s %s@%s, fixed in %s: %s (imported, never called)\n", id, f.module, f.version, orNone(f.fixed), f.summary)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(allowed)) {
		if found[id] == nil {
			fmt.Fprintf(&text, "gone     %s isn't found any more: take it off the list\n", id)
		}
	}
	if _, err := text.WriteTo(out); err != nil {
		return err
	}
	if refused > 0 {
		return fmt.Errorf("%d vulnerabilities that aren't on the list: update the module, or explain each there", refused)
	}
	return nil
}

func orNone(version string) string {
	if version == "" {
		return "no version yet"
	}
	return version
}
