package localtemporal

import (
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary play the temporal CLI.
func TestMain(m *testing.M) {
	if os.Getenv("LOCALTEMPORAL_CLI") != "" {
		if err := playCLI(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// playCLI is `temporal server start-dev` with the flags that we use.
func playCLI(args []string) error {
	if len(args) < 2 || args[0] != "server" || args[1] != "start-dev" {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	fs := flag.NewFlagSet("start-dev", flag.ContinueOnError)
	ip, port := fs.String("ip", "", ""), fs.String("port", "", "")
	namespace, db := fs.String("namespace", "", ""), fs.String("db-filename", "", "")
	fs.String("ui-port", "", "")
	fs.String("log-level", "", "")
	fs.Bool("headless", false, "")
	attrs := 0
	fs.Func("search-attribute", "", func(string) error { attrs++; return nil })
	if err := fs.Parse(args[2:]); err != nil {
		return err
	}
	if attrs != len(SearchAttributes()) || *db == "" {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	f := newFake()
	f.namespaces[*namespace] = maps.Clone(SearchAttributes())
	l, err := net.Listen("tcp", *ip+":"+*port)
	if err != nil {
		return err
	}
	f.serve(l)
	select {}
}

func TestStartByTheCLI(t *testing.T) {
	source := standInSource(t) // not built, so the CLI comes first
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(path, "temporal")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	t.Setenv("LOCALTEMPORAL_CLI", "1")
	s, err := Start(t.Context(), Options{SourceDir: source, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if s.Pid() == 0 || !strings.HasPrefix(s.Address, "127.0.0.1:") || !strings.HasPrefix(s.UIURL, "http://127.0.0.1:") {
		t.Errorf("got %+v", s)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	port := strings.TrimPrefix(s.Address, "127.0.0.1:")
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatalf("the port is still in use: %v", err)
	}
	defer l.Close()
	// What listens there must not be taken for the server that is started.
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{SourceDir: source, DataDir: t.TempDir(), Port: n}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}
