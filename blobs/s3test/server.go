// Package s3test starts a real S3 server for tests: versitygw, which keeps each
// object in a file, so that a test can damage it where it lies.
//
// It is built from its Go module once and kept in the cache. The server binds to
// loopback on a free port, keeps its data in a temporary directory, and ends with
// the test, even when that is killed. Under `go test -short` nothing is started,
// and the test is skipped.
package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/laneway/laneway/internal/childproc"
	"github.com/laneway/laneway/internal/freeport"
)

// Region is the server's.
const Region = "us-east-1"

// The credentials of the server's only account.
const (
	AccessKey = "laneway-access-key"
	SecretKey = "laneway-secret-key"
)

const (
	readyTimeout = 2 * time.Minute // long, for a busy machine
	stopGrace    = 10 * time.Second
)

// Server is an S3 server, the same over restarts.
type Server struct {
	// Addr is its HOST:PORT.
	Addr string

	tb      testing.TB
	binary  string
	dir     string
	process *childproc.Process
	log     *bytes.Buffer
}

// Start starts a server. It ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a server: not in -short")
	}
	binary, err := build(tb.Context(), tb.Logf)
	must(tb, err)
	port, err := freeport.Get()
	must(tb, err)
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), tb: tb, binary: binary, dir: tb.TempDir()}
	for _, sub := range []string{"data", "meta"} {
		must(tb, os.Mkdir(filepath.Join(s.dir, sub), 0o755))
	}
	tb.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Login sets the credentials that the SDK finds in its environment, and nothing
// else that it would look at.
func Login(t *testing.T, access, secret string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
}

// MakeBucket makes a bucket.
func (s *Server) MakeBucket(bucket string) {
	s.tb.Helper()
	must(s.tb, os.Mkdir(filepath.Join(s.dir, "data", bucket), 0o755))
}

// URL is a bucket's URL as blobs.url takes it.
func (s *Server) URL(bucket string) string { return URLAt(s.Addr, bucket) }

// URLAt is the URL of a bucket at another address of the server, a proxy's.
func URLAt(addr, bucket string) string {
	q := url.Values{"region": {Region}, "endpoint": {"http://" + addr}, "use_path_style": {"true"}}
	return (&url.URL{Scheme: "s3", Host: bucket, RawQuery: q.Encode()}).String()
}

// Object is the file that holds an object.
func (s *Server) Object(bucket, key string) string {
	return filepath.Join(s.dir, "data", bucket, filepath.FromSlash(key))
}

// Pid is the server's process id, for SIGSTOP and SIGCONT.
func (s *Server) Pid() int { return s.process.Pid() }

// Kill ends the server as kill -9 does, and waits for its end.
func (s *Server) Kill() {
	if s.process != nil {
		must(s.tb, s.process.Kill())
	}
}

// Restart starts the server on its data, after it was shut down if it runs, and
// returns once it serves.
func (s *Server) Restart() {
	s.tb.Helper()
	if s.process != nil {
		must(s.tb, s.process.Stop(stopGrace))
	}
	//nolint:gosec // this package has built the program, and childproc ends it
	cmd := exec.CommandContext(context.Background(), s.binary, "--access", AccessKey, "--secret", SecretKey, "--region", Region,
		"--port", s.Addr, "--health", "/health", "--quiet", "posix", "--sidecar", filepath.Join(s.dir, "meta"), filepath.Join(s.dir, "data"))
	s.log = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	p, err := childproc.Start(cmd)
	must(s.tb, err)
	s.process = p
	ctx, cancel := context.WithTimeout(s.tb.Context(), readyTimeout)
	defer cancel()
	must(s.tb, s.awaitReady(ctx))
}

// awaitReady asks until the server answers.
func (s *Server) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+"/health", http.NoBody)
	if err != nil {
		return err
	}
	for {
		r, err := http.DefaultClient.Do(ask)
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-s.process.Done():
			return fmt.Errorf("the S3 server ended: %w\n%s", s.process.Err(), s.log)
		case <-ctx.Done():
			return fmt.Errorf("the S3 server is not ready: %w", err)
		}
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
