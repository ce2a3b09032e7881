package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/fanout/claims"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/outbox"
	"github.com/laneway/laneway/stores/pebble"
)

// checkTimeout bounds how long a server is waited for.
const checkTimeout = 15 * time.Second

// checkStore looks at the store and writes nothing to it.
func checkStore(ctx context.Context, c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	switch c.Store.Kind() {
	case config.Redis, config.Scylla:
		st, err := OpenStore(ctx, c, StoreOptions{Still: true})
		var settings *config.Error
		if errors.As(err, &settings) {
			bad(storeFix(c, err), "the store %s cannot be used: %s", c.Store.Shown(), settings.Problems[0].Message)
			return
		}
		if err != nil {
			bad(storeFix(c, err), "the store %s cannot be used: %v", c.Store.Shown(), err)
			return
		}
		passed(fitness(c))
		checkRemote(ctx, c, st, passed, bad)
	default:
		d, ok, err := pebble.Inspect(c.StoreDir())
		switch {
		case errors.Is(err, mailbox.ErrStoreLocked):
			bad("stop the node that runs there, or set data_dir to another directory", "%v", err)
		case err != nil:
			bad("check the disk, and restore the data directory from a backup", "the store cannot be opened: %v", err)
		case !ok:
			passed("the store is new")
		default:
			checkDeployment(c, d, passed, bad)
		}
	}
}

// fitness says what was found out about a server by opening its store.
func fitness(c *config.Config) string {
	switch {
	case c.Store.Kind() == config.Scylla:
		return fmt.Sprintf("the store answers, and its schema fits this build and a retention of %d days", c.RetentionDays)
	case c.Store.AllowUnsafe:
		return "note: the store is a standalone Redis; LANEWAY_REDIS_ALLOW_UNSAFE_DEV is set, so persistence and eviction were not looked at"
	}
	return "the store is a standalone Redis that keeps what it acknowledged, but for its last second at a crash, and evicts nothing"
}

// storeFix says what to do about a server that cannot be used. What a setting
// must be, the error says itself.
func storeFix(c *config.Config, err error) string {
	server := "Redis"
	if c.Store.Kind() == config.Scylla {
		server = "the cluster"
	}
	switch {
	case errors.Is(err, mailbox.ErrUnsafeStore):
		return "change that on the server, or name another server in store.url (--store)"
	case errors.Is(err, mailbox.ErrSchema):
		return "do what the message says; `laneway schema apply` is safe to repeat"
	case errors.As(err, new(*config.Error)):
		return "correct store.url (--store, LANEWAY_STORE_URL)"
	case unreachable(err):
		return "start " + server + ", or correct store.url (--store, LANEWAY_STORE_URL)"
	}
	return "do what the message says; the log of " + server + " may say more"
}

func checkRemote(ctx context.Context, c *config.Config, st mailbox.Store, passed func(string), bad func(fix, format string, args ...any)) {
	defer func() { _ = st.Close() }()
	d, err := st.Deployment(ctx)
	switch {
	case errors.Is(err, mailbox.ErrNotFound):
		passed("the store is new")
	case err != nil:
		bad("look at the server's log", "the store %s cannot be read: %v", c.Store.Shown(), err)
	default:
		checkLayout(ctx, c, st, d, passed, bad)
		checkClaims(ctx, c, st, passed, bad)
	}
}

// checkLayout compares the settings with the deployment, whose outbox may have been
// migrated.
func checkLayout(ctx context.Context, c *config.Config, st mailbox.Store, d mailbox.Deployment, passed func(string), bad func(fix, format string, args ...any)) {
	use, err := useOutbox(ctx, st, c)
	if err != nil {
		bad("do what the message says", "%v", err)
		return
	}
	if len(use.Earlier) == 0 {
		checkDeployment(c, d, passed, bad)
		return
	}
	of := *c
	of.OutboxPartitions = use.First // as the row has it; the settings were compared above
	checkDeployment(&of, d, func(string) {
		old := use.Earlier[len(use.Earlier)-1]
		passed(fmt.Sprintf("the store has %d shards, as the settings say, and its outbox was migrated to %d partitions; the topic %s is %s", d.ShardCount, use.Partitions, old.Name, old.State))
	}, bad)
}

// OutboxUse returns which topics are the outbox for these settings, as a store that
// other processes can use has it, or as if there was never a migration.
func OutboxUse(ctx context.Context, c *config.Config) (outbox.Use, error) {
	var none outbox.Layout
	if !c.Shared() {
		return none.Use(c.Log.TopicPrefix, c.OutboxPartitions)
	}
	st, err := OpenStore(ctx, c, StoreOptions{Still: true})
	if err != nil {
		return outbox.Use{}, withStoreFix(c, err)
	}
	defer func() { _ = st.Close() }()
	return useOutbox(ctx, st, c)
}

// checkClaims looks at how the outbox partitions are divided, with this instance
// as its settings are.
func checkClaims(ctx context.Context, c *config.Config, st mailbox.Store, passed func(string), bad func(fix, format string, args ...any)) {
	if !c.Shared() {
		return
	}
	t, err := claims.Load(ctx, st)
	if err != nil {
		bad("look at the server's log", "%v", err)
		return
	}
	own, err := c.Fanout.Own(c.OutboxPartitions)
	if err != nil {
		bad("correct fanout.partitions", "%v", err)
		return
	}
	sets, standby := map[string][]int32{}, c.Fanout.Standby
	for _, in := range t.Instances {
		sets[in.Name] = in.Own
		standby = standby || in.Standby
	}
	sets[c.Node] = own
	err = fanout.CheckAssignment(c.OutboxPartitions, sets)
	var gap *fanout.GapError
	switch {
	case errors.As(err, &gap) && standby:
		passed(fmt.Sprintf("note: outbox partitions %s are in no instance's set; one on standby works them", claims.Ranges(gap.Partitions)))
	case errors.As(err, &gap):
		bad("start a coordinator with them in fanout.partitions (`laneway coordinate`), or set fanout.standby on one", "outbox partitions %s are in the set of no instance that is known: their records would not be dispatched", claims.Ranges(gap.Partitions))
	case err != nil:
		bad("give each instance a set of its own in fanout.partitions; one that was killed is known for another lease", "%v", err)
	default:
		passed(fmt.Sprintf("the %d outbox partitions are divided among %d instances without overlap and without gap", c.OutboxPartitions, len(sets)))
	}
}

// checkDeployment compares the settings that can never change with those that the
// store was made with.
func checkDeployment(c *config.Config, d mailbox.Deployment, passed func(string), bad func(fix, format string, args ...any)) {
	where, other := c.Store.Shown(), "store.url to another store"
	if c.Store.Kind() == config.Pebble {
		where, other = c.StoreDir(), "data_dir to another directory"
	}
	switch {
	case d.ShardCount != c.Shards || d.OutboxPartitions != c.OutboxPartitions:
		bad(fmt.Sprintf("set shards to %d and outbox_partitions to %d, or set %s", d.ShardCount, d.OutboxPartitions, other),
			"the store %s was made with %d shards and %d outbox partitions, the settings say %d and %d; they can never change",
			where, d.ShardCount, d.OutboxPartitions, c.Shards, c.OutboxPartitions)
	case d.HashVersion != mailbox.HashVersion:
		bad("use the build that made it, or set "+other, "the store %s places users by hash version %d, this build by %d", where, d.HashVersion, mailbox.HashVersion)
	default:
		passed(fmt.Sprintf("the store has %d shards and %d outbox partitions, as the settings say", d.ShardCount, d.OutboxPartitions))
	}
}
