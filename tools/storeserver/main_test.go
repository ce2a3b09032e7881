package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gocql/gocql"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// commandEnv makes the test binary the command that is run, of that name.
const commandEnv = "STORESERVER_TEST_COMMAND"

// noteEnv is a file that the command writes a line to, and that the test reads.
const noteEnv = "STORESERVER_TEST_NOTE"

func TestMain(m *testing.M) {
	if name := os.Getenv(commandEnv); name != "" {
		os.Exit(command(name, os.Getenv("LANEWAY_STORE_URL")))
	}
	os.Exit(m.Run())
}

func command(name, store string) int {
	switch name {
	case "redis":
		return talkToRedis(store)
	case "cql":
		return talkToCQL(store)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	if name == "end" {
		if code := endRedis(store); code != 0 {
			return code
		}
	}
	note("waiting for a signal")
	if <-c == syscall.SIGTERM {
		return 5
	}
	return 6
}

func talkToRedis(store string) int {
	options, err := goredis.ParseURL(store)
	if err != nil {
		panic(err)
	}
	c, ctx := goredis.NewClient(options), context.Background()
	for _, setting := range []string{"appendonly", "appendfsync", "maxmemory-policy"} {
		note(fmt.Sprint(c.ConfigGet(ctx, setting).Val()))
	}
	note(store)
	note(os.Getenv("STORESERVER"))
	return 7
}

func endRedis(store string) int {
	options, err := goredis.ParseURL(store)
	if err != nil {
		panic(err)
	}
	goredis.NewClient(options).ShutdownNoSave(context.Background())
	return 0
}

func talkToCQL(store string) int {
	u, err := url.Parse(store)
	if err != nil {
		panic(err)
	}
	cluster := gocql.NewCluster(u.Host)
	cluster.ProtoVersion, cluster.Timeout, cluster.ConnectTimeout = 4, time.Minute, time.Minute
	s, err := cluster.CreateSession()
	if err != nil {
		panic(err)
	}
	defer s.Close()
	args := strings.Join(os.Args[1:], " ")
	statement := `CREATE TABLE laneway.t (p int PRIMARY KEY)`
	if args == "schema apply --store "+store+" --create-keyspace" {
		statement = `CREATE KEYSPACE laneway WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`
	}
	if err := s.Query(statement).Exec(); err != nil {
		note(err.Error())
		return 1
	}
	note(args)
	return 0
}

func note(line string) {
	f, err := os.OpenFile(os.Getenv(noteEnv), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
	}
	if err != nil {
		panic(err)
	}
}

// prepare names the command, puts temporary directories below the test's, and
// returns a reader of the command's notes.
func prepare(t *testing.T, name string) func() []string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server: not in -short")
	}
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(t.TempDir(), "note")
	t.Setenv(commandEnv, name)
	t.Setenv(noteEnv, path)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "laneway-store-*"))
		require.NoError(t, err)
		require.Empty(t, left, "the data are left behind")
	})
	return func() []string {
		data, _ := os.ReadFile(path)
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

// TestRedisServesTheCommand: it finds a Redis that Laneway accepts, its exit code
// is passed on, and the server is gone then.
func TestRedisServesTheCommand(t *testing.T) {
	notes := prepare(t, "redis")
	var out strings.Builder
	require.Equal(t, 7, run([]string{"redis", "--", os.Args[0]}, nil, &out))
	said := notes()
	require.Equal(t, []string{"map[appendonly:yes]", "map[appendfsync:everysec]", "map[maxmemory-policy:noeviction]"}, said[:3])
	u, err := url.Parse(said[3])
	require.NoError(t, err)
	require.Contains(t, out.String(), "Redis serves at "+said[3])
	require.Equal(t, "Redis", said[4], "the command is told that the store ends with it")
	_, err = net.Dial("tcp", u.Host)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestCQLSchemaIsLaidFirst: by the command's own program, before the command.
func TestCQLSchemaIsLaidFirst(t *testing.T) {
	notes := prepare(t, "cql")
	var out strings.Builder
	require.Equal(t, 0, run([]string{"cql", "--", os.Args[0], "dev", "--data-dir", "x"}, nil, &out), out.String())
	said := notes()
	require.Len(t, said, 2)
	require.Contains(t, said[0], "schema apply --store cql://127.0.0.1:")
	require.Equal(t, "dev --data-dir x", said[1])
}

// TestCQLSchemaThatFailsEndsIt: the command isn't run, and the code is passed on.
func TestCQLSchemaThatFailsEndsIt(t *testing.T) {
	notes := prepare(t, "redis") // which fails with 7, as it isn't one
	o := options{store: "cql", schema: true, command: []string{os.Args[0]}}
	code, err := o.run(&server{name: "none", url: "redis://127.0.0.1:1", done: make(chan struct{})}, nil)
	require.NoError(t, err)
	require.Equal(t, 7, code)
	require.Len(t, notes(), 5, "run once")
}

// TestSignalsReachTheCommand, which ends as it does on each.
func TestSignalsReachTheCommand(t *testing.T) {
	for sig, code := range map[os.Signal]int{syscall.SIGTERM: 5, syscall.SIGINT: 6, syscall.SIGHUP: 128 + int(syscall.SIGHUP)} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("whoever started the tests ignores it, as nohup does, and so does the command")
			}
			notes := prepare(t, "wait")
			signals := make(chan os.Signal)
			ended := make(chan int, 1)
			go func() { ended <- run([]string{"redis", "--", os.Args[0]}, signals, &strings.Builder{}) }()
			require.Eventually(t, func() bool { return notes()[0] != "" }, time.Minute, 10*time.Millisecond)
			signals <- sig
			require.Equal(t, code, <-ended)
		})
	}
}

// TestSignalBeforeTheCommand: the server's start is given up.
func TestSignalBeforeTheCommand(t *testing.T) {
	notes := prepare(t, "redis")
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	require.Equal(t, 130, run([]string{"cql", "--", os.Args[0]}, signals, &strings.Builder{}))
	require.Equal(t, []string{""}, notes())
}

// TestEndOfTheServerEndsTheCommand, politely, and is told.
func TestEndOfTheServerEndsTheCommand(t *testing.T) {
	prepare(t, "end")
	var out strings.Builder
	require.Equal(t, 5, run([]string{"redis", "--", os.Args[0]}, nil, &out))
	require.Contains(t, out.String(), "Redis has ended")
}

func TestCommandThatIsNotThere(t *testing.T) {
	prepare(t, "redis")
	var out strings.Builder
	require.Equal(t, 1, run([]string{"redis", "--", "/no/such/program"}, nil, &out))
	require.Contains(t, out.String(), "/no/such/program")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"redis"}, {"redis", "bin/laneway", "demo"}, {"redis", "--"}, {"-nonsense", "redis", "--", "x"}, {"-h"},
	} {
		var out strings.Builder
		require.Equal(t, 2, run(args, nil, &out), args)
		require.Contains(t, out.String(), "redis|cql -- COMMAND")
	}
	var out strings.Builder
	require.Equal(t, 2, run([]string{"mysql", "--", "x"}, nil, &out))
	require.Contains(t, out.String(), `there is no store "mysql": use redis or cql`)
}
