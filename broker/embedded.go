package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// EmbeddedOptions configures the embedded log.
type EmbeddedOptions struct {
	Dir  string // required; made when missing
	Port int    // on loopback; 0 for a free one
	// RetentionCheck is how often old records are deleted; default 10 minutes.
	RetentionCheck time.Duration
	// NoSync acknowledges records before they are on disk. Only for tests and
	// benchmarks: a power cut loses acknowledged records.
	NoSync bool
	Logger *slog.Logger
	// OnFatal is called once, on its own goroutine, when the disk takes no more
	// writes. What was acknowledged is safe; the process should exit with a
	// non-zero code, and a restart with free space heals.
	OnFatal func(error)
}

// embeddedSegmentBytes is the default size of a segment file, the unit in which
// disk space comes back.
const embeddedSegmentBytes = "16777216"

// Embedded is a log in this process that speaks the Kafka protocol on loopback:
// franz-go's kfake with a data directory and synced writes. It is one broker
// without replication. Its memory grows with the number of record batches that
// it keeps (about 100 bytes each), so its topics want a bounded retention.
type Embedded struct {
	cluster   *kfake.Cluster
	cl        *kgo.Client
	lock      *dirLock
	addrs     []string
	log       *slog.Logger
	stop      context.CancelFunc
	done      sync.WaitGroup
	closeOnce sync.Once
}

// StartEmbedded opens the log in a directory and serves it. A directory that
// another process has open is refused with [ErrDirLocked]. ctx bounds the start
// only.
func StartEmbedded(ctx context.Context, o EmbeddedOptions) (e *Embedded, err error) {
	if o.Dir == "" {
		return nil, errors.New("embedded log: no directory")
	}
	if o.RetentionCheck <= 0 {
		o.RetentionCheck = 10 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded log: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.release()
		}
	}()
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("laneway-embedded"),
		kfake.DataDir(filepath.Join(o.Dir, "data")),
		kfake.ListenFn(guardListener),
		kfake.WithLogger(&kfakeLogger{log: o.Logger, dir: o.Dir, onFatal: o.OnFatal}),
		kfake.BrokerConfigs(map[string]string{
			"log.segment.bytes":         embeddedSegmentBytes,
			"message.max.bytes":         "2097152",
			"offsets.retention.minutes": "525600",
			// kfake's own cleaner may delete a partition's last record, and after a
			// kill -9 an empty partition begins at offset 0 again: positions would
			// repeat. It never runs; enforceRetention does its work.
			"log.cleaner.backoff.ms": "3153600000000",
		}),
	}
	if o.Port != 0 {
		opts = append(opts, kfake.Ports(o.Port))
	}
	if !o.NoSync {
		opts = append(opts, kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("embedded log in %s: %w", o.Dir, err)
	}
	e = &Embedded{cluster: cluster, lock: lock, addrs: cluster.ListenAddrs(), log: o.Logger}
	e.cl, err = NewClient(ClientConfig{Brokers: e.addrs, ClientID: "laneway-embedded-retention"})
	if err == nil {
		err = Ping(ctx, e.cl)
	}
	if err != nil {
		cluster.Close()
		return nil, fmt.Errorf("embedded log in %s: %w", o.Dir, err)
	}
	run, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.done.Go(func() { e.keepRetention(run, o.RetentionCheck) })
	return e, nil
}

// Addrs returns the host:port to connect to.
func (e *Embedded) Addrs() []string { return append([]string(nil), e.addrs...) }

// Close stops serving and lets go of the directory.
func (e *Embedded) Close() {
	e.closeOnce.Do(func() {
		e.stop()
		e.done.Wait()
		e.cl.Close()
		e.cluster.Close()
		e.lock.release()
	})
}
