package scylla

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2"

	"github.com/laneway/laneway/mailbox"
)

// SchemaOptions say what ApplySchema has to make.
type SchemaOptions struct {
	// Options name the keyspace and how to reach it; RetentionDays is the mailbox
	// retention that the tables have to hold. ShardCount is not needed.
	Options
	// CreateKeyspace makes the keyspace when there is none; nil does not.
	CreateKeyspace *Replication
}

// Replication is how often a keyspace's rows are kept.
type Replication struct {
	// Factor is the number of replicas in every datacenter; 3 is what survives the
	// loss of a node.
	Factor int
	// Datacenters, if not empty, has the number for each and replaces Factor.
	Datacenters map[string]int
}

// SchemaApplied says what ApplySchema found and did.
type SchemaApplied struct {
	Keyspace        string
	KeyspaceCreated bool
	// Files holds the names of the schema files that were applied now.
	Files []string
	// Version is the version that the keyspace has now.
	Version int
	// RetentionDays is the retention that the tables hold now; it is never made
	// shorter, because entries would go before their day expires.
	RetentionDays int
	// RetentionRaised says that it was longer than before.
	RetentionRaised bool
}

// ApplySchema makes a keyspace fit this build. It may be repeated and run several
// times at once: all statements go to one server, which puts them in order, and
// say IF NOT EXISTS. What is there afterwards is verified. A schema newer than
// this build is refused before anything is changed.
func ApplySchema(ctx context.Context, o SchemaOptions) (SchemaApplied, error) {
	if o.ShardCount == 0 {
		o.ShardCount = 1 // not looked at
	}
	opts, err := o.withDefaults()
	if err != nil {
		return SchemaApplied{}, err
	}
	t, err := parseURL(opts.URL)
	if err != nil {
		return SchemaApplied{}, err
	}
	files, err := schemaFiles()
	if err != nil {
		return SchemaApplied{}, err
	}
	session, err := opts.connectFirst(ctx, &t)
	if err != nil {
		return SchemaApplied{}, err
	}
	defer session.Close()
	a := applier{opts: &opts, session: session, keyspace: t.keyspace, files: files}
	if err := a.apply(ctx, o.CreateKeyspace); err != nil {
		return a.done, err
	}
	return a.done, nil
}

// connectFirst opens a session on the server that all who apply a schema at once
// pick: two servers that make one table at the same time make two of it.
func (o *Options) connectFirst(ctx context.Context, t *target) (gocqlx.Session, error) {
	first, err := o.connectAnywhere(ctx, t)
	if err != nil {
		return first, err
	}
	defer first.Close()
	var hosts []net.IP
	for _, stmt := range []string{selectLocal, selectPeers} {
		if h := o.hooks.statement; h != nil {
			h(stmt)
		}
		var ip net.IP
		iter := first.Session.Query(stmt).WithContext(ctx).Idempotent(true).Iter()
		for iter.Scan(&ip) {
			hosts = append(hosts, ip)
		}
		if err := iter.Close(); err != nil {
			return first, schemaFailed("read the servers of the cluster", err)
		}
	}
	slices.SortFunc(hosts, func(a, b net.IP) int { return bytes.Compare(a.To16(), b.To16()) })
	var failed error
	for _, h := range hosts {
		session, err := o.connect(ctx, t, "", h.String())
		if err == nil {
			return session, nil
		}
		failed = errors.Join(failed, err) // down: the next one
	}
	return first, failed
}

const (
	selectLocal = `SELECT rpc_address FROM system.local`
	selectPeers = `SELECT rpc_address FROM system.peers`
)

// applier is one run of ApplySchema.
type applier struct {
	opts     *Options
	session  gocqlx.Session
	keyspace string
	files    []schemaFile
	done     SchemaApplied
}

func (a *applier) apply(ctx context.Context, create *Replication) error {
	in, err := a.opts.inspect(ctx, a.session, a.keyspace)
	if err != nil {
		return err
	}
	a.done.Keyspace = a.keyspace
	if !in.keyspace {
		if create == nil {
			return fmt.Errorf("%w: there is no keyspace %s: create it, or run `laneway schema apply --create-keyspace`", mailbox.ErrSchema, a.keyspace)
		}
		if err := a.createKeyspace(ctx, create); err != nil {
			return err
		}
	}
	if err := in.tooNew(a.keyspace, a.files); err != nil {
		return err
	}
	if in.lost(a.keyspace, a.files) != nil {
		// Another process may have made them between two looks at the keyspace.
		if in, err = a.opts.inspect(ctx, a.session, a.keyspace); err != nil {
			return err
		}
		if err := in.lost(a.keyspace, a.files); err != nil {
			return err
		}
	}
	for _, f := range a.files {
		if err := a.makeTables(ctx, f); err != nil {
			return err
		}
	}
	if err := a.raiseLifetimes(ctx, &in); err != nil {
		return err
	}
	// Nothing is written before all servers know the tables: what a server does
	// not know it may lose.
	if err := a.agree(ctx); err != nil {
		return err
	}
	if err := a.note(ctx, &in); err != nil {
		return err
	}
	if in, err = a.opts.inspect(ctx, a.session, a.keyspace); err != nil {
		return err
	}
	a.done.Version = len(a.files) - 1
	a.done.RetentionDays = in.lives.last()
	return in.check(a.keyspace, a.files, a.opts.RetentionDays)
}

const (
	selectLocalVersion = `SELECT schema_version FROM system.local`
	selectPeerVersions = `SELECT schema_version FROM system.peers`

	agreeFor   = time.Minute
	agreeEvery = 50 * time.Millisecond
)

// agree waits until all servers have the schema, but not for ever: one that is
// down gets it when it is back.
func (a *applier) agree(ctx context.Context) error {
	for start := time.Now(); ; {
		versions := map[gocql.UUID]bool{}
		for _, stmt := range []string{selectLocalVersion, selectPeerVersions} {
			var v gocql.UUID
			iter := a.session.Session.Query(stmt).WithContext(ctx).Idempotent(true).Iter()
			for iter.Scan(&v) {
				versions[v] = true
			}
			if err := iter.Close(); err != nil {
				return schemaFailed("read the servers' schema versions", err)
			}
		}
		if len(versions) <= 1 {
			return nil
		}
		if time.Since(start) > agreeFor {
			a.opts.Logger.Warn("not all servers have the new schema yet: one is down, or slow", "keyspace", a.keyspace, "versions", len(versions))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(agreeEvery):
		}
	}
}

// exec runs a statement that changes the schema or its own rows.
func (a *applier) exec(ctx context.Context, what, stmt string, args ...any) error {
	if h := a.opts.hooks.statement; h != nil {
		h(stmt)
	}
	return schemaFailed(what, a.session.Session.Query(stmt, args...).WithContext(ctx).Idempotent(true).Exec())
}

func (a *applier) createKeyspace(ctx context.Context, r *Replication) error {
	replication := []string{"'class': 'NetworkTopologyStrategy'"}
	if len(r.Datacenters) == 0 {
		if r.Factor < 1 {
			return fmt.Errorf("scylla: create keyspace %s: a replication factor of %d", a.keyspace, r.Factor)
		}
		replication = append(replication, "'replication_factor': "+strconv.Itoa(r.Factor))
	}
	for dc, n := range r.Datacenters {
		if n < 1 {
			return fmt.Errorf("scylla: create keyspace %s: a replication factor of %d", a.keyspace, n)
		}
		replication = append(replication, fmt.Sprintf("'%s': %d", strings.ReplaceAll(dc, "'", "''"), n))
	}
	slices.Sort(replication[1:])
	a.done.KeyspaceCreated = true
	return a.exec(ctx, "create keyspace "+a.keyspace,
		fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = {%s}", a.keyspace, strings.Join(replication, ", ")))
}

// makeTables runs a file's statements, also when it was applied before: a table
// that is there stays as it is.
func (a *applier) makeTables(ctx context.Context, f schemaFile) error {
	for _, st := range f.statements {
		t, err := parseTable(st)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		st = strings.Replace(fillIn(st, a.opts.RetentionDays), t.name, a.keyspace+"."+t.name, 1)
		if err := a.exec(ctx, fmt.Sprintf("apply %s: make table %s", f.name, t.name), st); err != nil {
			return err
		}
	}
	return nil
}

// raiseLifetimes gives tables that were there the lifetimes of the retention, if
// theirs are shorter.
func (a *applier) raiseLifetimes(ctx context.Context, in *inspection) error {
	a.done.RetentionRaised = len(in.lives) > 0 && a.opts.RetentionDays > in.lives.last()
	tables, err := schemaTables(a.files)
	if err != nil {
		return err
	}
	for _, t := range tables {
		ttl := t.lifetime(a.opts.RetentionDays)
		if has, ok := in.tables[t.name]; !ok || has == 0 || has >= ttl {
			continue // it was made just now, or its rows live long enough
		}
		if err := a.exec(ctx, "raise the lifetime of table "+t.name,
			fmt.Sprintf("ALTER TABLE %s.%s WITH default_time_to_live = %d", a.keyspace, t.name, ttl)); err != nil {
			return err
		}
	}
	return nil
}

// note writes down what was applied. Entries that are there already keep their
// shorter lives when the retention was raised: it holds from the first day on
// that no such entry can be of, which is tomorrow, and one for records ahead of
// time.
func (a *applier) note(ctx context.Context, in *inspection) error {
	for _, f := range a.files {
		if _, ok := in.versions[f.version]; ok {
			continue
		}
		a.done.Files = append(a.done.Files, f.name)
		if err := a.exec(ctx, "note that "+f.name+" is applied",
			fmt.Sprintf("INSERT INTO %s.schema_versions (schema_name, version, file, digest, applied_at) VALUES (?, ?, ?, ?, ?)", a.keyspace),
			schemaName, f.version, f.name, f.digest, time.Now()); err != nil {
			return err
		}
	}
	if a.opts.RetentionDays <= in.lives.last() {
		return nil
	}
	since := -1 << 31
	if len(in.lives) > 0 {
		since = int(mailbox.DayOf(time.Now().UnixMilli())) + 2
	}
	return a.exec(ctx, "note the retention",
		fmt.Sprintf("INSERT INTO %s.schema_retention (schema_name, since_day, retention_days) VALUES (?, ?, ?)", a.keyspace),
		schemaName, since, a.opts.RetentionDays)
}
