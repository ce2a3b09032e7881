package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/outbox"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/stores/redis"
	"github.com/laneway/laneway/stores/scylla"
)

func (n *Node) openStore(ctx context.Context) error {
	if n.cfg.Store.ShadowURL != "" { // it is opened later, and then only the log would tell
		c := *n.cfg
		c.Store = n.cfg.Store.Shadow()
		if err := checkStoreURL("store.shadow_url", &c); err != nil {
			return err
		}
	}
	// The nodes that serve let mailboxes expire.
	st, err := OpenStore(ctx, n.cfg, StoreOptions{Logger: n.log.With("part", "store"), OnFatal: n.fail, Still: n.opts.CoordinatorOnly})
	if err != nil {
		return withStoreFix(n.cfg, err)
	}
	if n.cfg.Store.ShadowURL != "" && !n.opts.CoordinatorOnly { // a coordinator writes no mailbox
		st = n.withShadow(st)
	}
	n.onStop(func() {
		if err := st.Close(); err != nil {
			n.log.Error("store not closed cleanly; the next start recovers", "error", err)
		}
	})
	n.store = st
	if n.opts.WrapStore != nil {
		n.store = n.opts.WrapStore(st)
	}
	if n.outbox, err = useOutbox(ctx, n.store, n.cfg); err != nil {
		return withStoreFix(n.cfg, err)
	}
	if err := n.reachLog(ctx); err != nil { // a store is made for a log that is there
		return err
	}
	if err := n.store.EnsureDeployment(ctx, deployment(n.cfg, n.outbox.First)); err != nil {
		return withStoreFix(n.cfg, err)
	}
	if n.cfg.Store.Kind() != config.Pebble {
		n.watch("store", "the store does not answer; nothing is committed, delivered or read", func(ctx context.Context) error {
			if err := st.Healthy(); err != nil {
				return err
			}
			_, err := st.LoadShard(ctx, 0)
			return err
		})
	}
	return nil
}

// useOutbox returns which topics are the outbox for these settings.
func useOutbox(ctx context.Context, st mailbox.RegistryStore, c *config.Config) (outbox.Use, error) {
	l, _, err := outbox.Load(ctx, st)
	if err != nil {
		return outbox.Use{}, err
	}
	return l.Use(c.Log.TopicPrefix, c.OutboxPartitions)
}

// deployment is the store's immutable row: of the outbox it has the number of
// partitions that the first topic had.
func deployment(c *config.Config, firstPartitions int) mailbox.Deployment {
	return mailbox.Deployment{ShardCount: c.Shards, OutboxPartitions: firstPartitions, HashVersion: mailbox.HashVersion}
}

// StoreOptions configure the opening of a store beyond the settings.
type StoreOptions struct {
	Logger *slog.Logger // nil: none
	// OnFatal is told when the store can never be used again; nil: nobody is.
	OnFatal func(error)
	// Still leaves out what a store does by itself in the background: nothing
	// expires, and nothing is written but what is asked for.
	Still bool
	// Unmade makes no store on Pebble where there is none: what is opened then is
	// empty and in memory.
	Unmade bool
}

// OpenStore opens the store that the settings name. Its errors are the store's
// own.
func OpenStore(ctx context.Context, c *config.Config, o StoreOptions) (mailbox.Store, error) {
	if err := checkStoreURL("store.url", c); err != nil {
		return nil, err
	}
	expire := time.Duration(0) // as the store has it
	if o.Still {
		expire = -1
	}
	switch c.Store.Kind() {
	case config.Redis:
		if c.Store.AllowUnsafe && o.Logger != nil {
			o.Logger.Warn("LANEWAY_REDIS_ALLOW_UNSAFE_DEV is set: persistence and eviction of this Redis are not looked at, and mailboxes may be lost unseen")
		}
		return opened(redis.Open(ctx, redis.Options{
			URL: c.Store.URL, ShardCount: c.Shards, RetentionDays: c.RetentionDays, AllowUnsafe: c.Store.AllowUnsafe,
			ExpireEvery: expire, Logger: o.Logger, OnFatal: o.OnFatal,
		}))
	case config.Scylla:
		return opened(scylla.Open(ctx, scylla.Options{
			URL: c.Store.URL, ShardCount: c.Shards, RetentionDays: c.RetentionDays,
			ExpireEvery: expire, Logger: o.Logger, OnFatal: o.OnFatal,
		}))
	default:
		options := pebble.Options{
			Dir: c.StoreDir(), ShardCount: c.Shards, RetentionDays: c.RetentionDays,
			ExpireEvery: expire, Logger: o.Logger, OnFatal: o.OnFatal,
		}
		if o.Unmade {
			if _, there, err := pebble.Inspect(options.Dir); err == nil && !there {
				options.FS = vfs.NewMem()
			}
		}
		return opened(pebble.Open(options))
	}
}

// opened makes no store of a nil pointer.
func opened[S mailbox.Store](st S, err error) (mailbox.Store, error) {
	if err != nil {
		return nil, err
	}
	return st, nil
}

// withStoreFix adds what to do to an error of opening the store, if the error
// doesn't say it itself.
func withStoreFix(c *config.Config, err error) error {
	switch {
	case errors.Is(err, mailbox.ErrDeploymentMismatch), errors.Is(err, mailbox.ErrUnsafeStore), errors.Is(err, mailbox.ErrSchema),
		errors.Is(err, context.Canceled), errors.As(err, new(*config.Error)):
		return err
	case c.Store.Kind() == config.Pebble:
		return withDirFix(err)
	case unreachable(err):
		return fmt.Errorf("store %s: %w; start it, or correct store.url (--store)", c.Store.Shown(), err)
	}
	return fmt.Errorf("store %s: %w", c.Store.Shown(), err)
}

// checkTail refuses a log that does not reach back as far as a store that comes
// back without its last writes may need it (design 3, joint retention).
func (n *Node) checkTail(ctx context.Context) error {
	if n.store.Incarnation() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	return broker.CheckRetention(ctx, n.dispatches.Client(), n.topics, config.TailRetention)
}
