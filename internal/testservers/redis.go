package testservers

import (
	"context"
	"testing"
)

// Redis is a RedisServer of a test, which fails when the server can't be had.
type Redis struct {
	*RedisServer

	tb testing.TB
}

// StartRedis starts a Redis of the test's own and returns once it serves. It
// stops with the test.
func StartRedis(tb testing.TB, config ...RedisConfig) *Redis {
	tb.Helper()
	skipShort(tb)
	server, err := NewRedis(context.Background(), tb.TempDir(), only(config))
	if err != nil {
		tb.Fatal(err)
	}
	r := &Redis{RedisServer: server, tb: tb}
	tb.Cleanup(r.Stop)
	return r
}

// Kill ends the server as kill -9 does, and waits for its end.
func (r *Redis) Kill() {
	r.tb.Helper()
	must(r.tb, r.RedisServer.Kill())
}

// Stop shuts the server down. Stopping one that is down does nothing.
func (r *Redis) Stop() {
	r.tb.Helper()
	if err := r.RedisServer.Stop(); err != nil {
		r.tb.Error(err)
	}
}

// Restart starts the server again on its data, after Kill or Stop, or shuts it
// down first. It returns once the server serves.
func (r *Redis) Restart() {
	r.tb.Helper()
	must(r.tb, r.RedisServer.Restart(context.Background()))
}

// AOFFiles are the files of the append-only file with what was written since its
// last rewrite, in their order.
func (r *Redis) AOFFiles() []string {
	r.tb.Helper()
	files, err := r.RedisServer.AOFFiles()
	must(r.tb, err)
	return files
}

// AOFSize is the length of the last of AOFFiles.
func (r *Redis) AOFSize() int64 {
	r.tb.Helper()
	size, err := r.RedisServer.AOFSize()
	must(r.tb, err)
	return size
}

// TruncateAOF cuts the last bytes off the append-only file of a server that is
// down.
func (r *Redis) TruncateAOF(bytes int64) {
	r.tb.Helper()
	must(r.tb, r.RedisServer.TruncateAOF(bytes))
}

// only is the one configuration that was given, or the zero one.
func only[T any](config []T) T {
	if len(config) == 0 {
		return *new(T)
	}
	return config[0]
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
