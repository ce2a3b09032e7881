package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

// What a server must be (design 3.2): of a version that has what the scripts
// use, not a cluster, with an append-only file that is synced, and one that never
// evicts.

// minMajor is the first major version with PEXPIRETIME.
const minMajor = 7

var errLoading = errors.New("redis is loading its data")

// server is what decides whether a server can be relied on.
type server struct {
	info    map[string][]string // every line of INFO
	runID   string
	loading bool
	cluster string // the reply to CLUSTER INFO
	// appendfsync is the setting, or empty with the reason why it can't be read.
	appendfsync string
	configErr   error
}

// readServer asks a connection for everything.
func readServer(ctx context.Context, cn *goredis.Conn) (*server, error) {
	pipe := cn.Pipeline()
	info, cluster := pipe.Info(ctx), pipe.ClusterInfo(ctx)
	config := pipe.ConfigGet(ctx, "appendfsync")
	_, _ = pipe.Exec(ctx) // each command has its error
	if err := info.Err(); err != nil {
		return nil, err
	}
	r := &server{info: parseInfo(info.Val()), cluster: cluster.Val(), configErr: config.Err()}
	if err := cluster.Err(); err != nil && !isReply(err) {
		return nil, err
	}
	if err := config.Err(); err != nil && !isReply(err) {
		return nil, err
	}
	r.appendfsync = config.Val()["appendfsync"]
	r.loading = r.first("loading") == "1"
	if r.runID = r.first("run_id"); r.runID == "" {
		return nil, unsafeServer("run_id", "missing", "INFO must name the server's run, by which a restart is noticed: use a Redis that does")
	}
	return r, nil
}

func isReply(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply)
}

// parseInfo reads the lines of INFO.
func parseInfo(text string) map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if ok && !strings.HasPrefix(name, "#") {
			m[name] = append(m[name], value)
		}
	}
	return m
}

func (r *server) first(name string) string {
	if v := r.info[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// unsafeServer is wrapped once more than it says anything: go-redis unwraps what
// a new connection's check returns, and would leave the bare sentinel.
func unsafeServer(setting, value, do string) error {
	return fmt.Errorf("%w", fmt.Errorf("%w: %s is %s: %s", mailbox.ErrUnsafeStore, setting, value, do))
}

// check returns an ErrUnsafeStore that names the first setting that is wrong.
// allowUnsafe skips persistence and eviction.
func (r *server) check(allowUnsafe bool) error {
	if err := r.checkVersion(); err != nil {
		return err
	}
	if err := r.checkStandalone(); err != nil {
		return err
	}
	if allowUnsafe {
		return nil
	}
	return r.checkKeeps()
}

func (r *server) checkVersion() error {
	lines := r.info["redis_version"]
	if len(lines) != 1 {
		return unsafeServer("redis_version", fmt.Sprintf("in %d lines of INFO", len(lines)), "exactly one is expected: connect to Redis itself, not to a proxy")
	}
	parts := strings.Split(lines[0], ".")
	var numbers []int
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil || strconv.FormatUint(n, 10) != p {
			break
		}
		numbers = append(numbers, int(n))
	}
	if len(parts) != 3 || len(numbers) != 3 {
		return unsafeServer("redis_version", strconv.Quote(lines[0]), "three numbers are expected: use a released Redis, 7.0.0 or later")
	}
	if numbers[0] < minMajor {
		return unsafeServer("redis_version", lines[0], "7.0.0 or later is needed: upgrade Redis")
	}
	return nil
}

func (r *server) checkStandalone() error {
	const do = "laneway needs one standalone Redis: use one that is not part of a cluster"
	if mode := r.first("redis_mode"); mode != "standalone" {
		return unsafeServer("redis_mode", strconv.Quote(mode), do)
	}
	if v := r.first("cluster_enabled"); v != "0" {
		return unsafeServer("cluster_enabled", strconv.Quote(v), do)
	}
	if r.cluster != "" {
		return unsafeServer("CLUSTER INFO", "answered", do)
	}
	if role := r.first("role"); role != "master" {
		return unsafeServer("role", strconv.Quote(role), "laneway writes: connect to the master")
	}
	return nil
}

func (r *server) checkKeeps() error {
	if v := r.first("aof_enabled"); v != "1" {
		return unsafeServer("appendonly", offText(v), "without the append-only file a restart loses mailboxes: set appendonly yes")
	}
	switch r.appendfsync {
	case "always", "everysec":
	case "":
		why := "it is not told"
		if r.configErr != nil {
			why = "CONFIG GET answers: " + r.configErr.Error()
		}
		return unsafeServer("appendfsync", "unknown", why+": let this user run CONFIG GET appendfsync")
	default:
		return unsafeServer("appendfsync", strconv.Quote(r.appendfsync), "a crash could lose more than the last second: set appendfsync everysec, or always")
	}
	if v := r.first("maxmemory_policy"); v != "noeviction" {
		return unsafeServer("maxmemory-policy", strconv.Quote(v), "a full server would drop mailboxes unseen: set maxmemory-policy noeviction")
	}
	return nil
}

func offText(v string) string {
	if v == "0" {
		return "no"
	}
	return strconv.Quote(v)
}
