package main

import (
	"context"

	"github.com/laneway/laneway/internal/testservers"
)

// keyspace is what the command finds in the URL.
const keyspace = "laneway"

// server is a store that serves.
type server struct {
	name string
	url  string
	done <-chan struct{} // closed when it has ended
	stop func() error
}

func startServer(ctx context.Context, store, dir string, logf testservers.Logf) (*server, error) {
	if store == "redis" {
		logf("starting Redis")
		r, err := testservers.NewRedis(ctx, dir, testservers.RedisConfig{Appendfsync: "everysec"})
		if err != nil {
			return nil, err
		}
		return &server{name: "Redis", url: r.URL(), done: r.Done(), stop: r.Stop}, nil
	}
	if _, err := testservers.FetchCassandra(ctx, logf); err != nil {
		return nil, err
	}
	logf("starting Cassandra, which takes some seconds")
	c, err := testservers.NewCassandra(ctx, dir, testservers.CassandraConfig{CommitLogSync: "periodic"}, logf)
	if err != nil {
		return nil, err
	}
	// Nobody needs its data any more.
	return &server{name: "Cassandra", url: c.URL(keyspace), done: c.Done(), stop: c.Kill}, nil
}
