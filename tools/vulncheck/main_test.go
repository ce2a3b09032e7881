package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const output = `
{"config":{"protocol_version":"v1.0.0"}}
{"osv":{"id":"GO-1","summary":"one"}}
{"osv":{"id":"GO-2","summary":"two"}}
{"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Serve"},{"module":"m","package":"m/x","function":"main","position":{"filename":"x/main.go","line":7}}]}}
{"finding":{"osv":"GO-2","trace":[{"module":"example.com/y","version":"v1.0.0","package":"example.com/y"}]}}
{"finding":{"osv":"GO-3","trace":[{"module":"example.com/z","version":"v1.0.0"}]}}
`

func check(t *testing.T, list, in string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "allowed.txt")
	if err := os.WriteFile(path, []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := run(path, strings.NewReader(in), &out)
	return out.String(), err
}

func TestWhatIsListedPasses(t *testing.T) {
	out, err := check(t, "# why\nGO-1 stdlib v1.26.9 a reason\nGO-9 stdlib v1.26.9 old\n", output)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"allowed  GO-1", "a reason", "unused   GO-2", "gone     GO-9"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "GO-3") {
		t.Errorf("a module of which nothing is imported was reported:\n%s", out)
	}
}

func TestWhatIsNotListedFails(t *testing.T) {
	for _, list := range []string{"", "GO-1 example.com/other v1 of another module\n"} {
		out, err := check(t, list, output)
		if err == nil || !strings.Contains(out, "REFUSED  GO-1 stdlib@v1.26.8, fixed in v1.26.9: one\n         called from x/main.go:7") {
			t.Errorf("list %q: %v\n%s", list, err, out)
		}
	}
}

func TestBrokenInputFails(t *testing.T) {
	if _, err := check(t, "", ""); err == nil {
		t.Error("empty output passed")
	}
	if _, err := check(t, "", "{"); err == nil {
		t.Error("broken output passed")
	}
	if _, err := check(t, "GO-1 stdlib\n", output); err == nil {
		t.Error("an entry without a reason passed")
	}
}

func TestTheListIsWellFormed(t *testing.T) {
	text, err := os.ReadFile("allowed.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAllowed(text); err != nil {
		t.Fatal(err)
	}
}
