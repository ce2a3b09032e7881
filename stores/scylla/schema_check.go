package scylla

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2"

	"github.com/laneway/laneway/mailbox"
)

const applyHint = "run `laneway schema apply`"

const (
	selectKeyspace  = `SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?`
	selectTables    = `SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = ?`
	selectColumns   = `SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = ?`
	selectVersions  = `SELECT version, digest FROM %s.schema_versions WHERE schema_name = ?`
	selectRetention = `SELECT since_day, retention_days FROM %s.schema_retention WHERE schema_name = ?`
)

// checkSchema reports whether a store can open on the keyspace as it is, and
// returns the lifetimes that its rows have.
func (o *Options) checkSchema(ctx context.Context, t *target) (lifetimes, error) {
	files, err := schemaFiles()
	if err != nil {
		return nil, err
	}
	session, err := o.connectAnywhere(ctx, t) // a session cannot begin in a keyspace that is missing
	if err != nil {
		return nil, err
	}
	defer session.Close()
	in, err := o.inspect(ctx, session, t.keyspace)
	if err != nil {
		return nil, err
	}
	if err := in.check(t.keyspace, files, o.RetentionDays); err != nil {
		return nil, err
	}
	if in.copies > 0 && in.copies < 3 {
		o.Logger.Warn("the loss of one server stops this keyspace or loses mailboxes: production needs 3 copies of each row", "keyspace", t.keyspace, "copies", in.copies)
	}
	return in.lives, nil
}

// copies reads a keyspace's replication; 0 for one that it does not know.
func copies(replication map[string]string) int {
	fewest := 0
	for name, value := range replication {
		n, err := strconv.Atoi(value)
		if name != "class" && err == nil && (fewest == 0 || n < fewest) {
			fewest = n
		}
	}
	return fewest
}

// inspection is what is found in a keyspace.
type inspection struct {
	keyspace bool
	copies   int            // of each row, in the datacenter that has the fewest
	tables   map[string]int // default_time_to_live by name
	columns  map[string]map[string]string
	versions map[int]string // digest by version
	lives    lifetimes
}

// inspect reads a keyspace's schema through a session that need not use it.
func (o *Options) inspect(ctx context.Context, session gocqlx.Session, keyspace string) (inspection, error) {
	in := inspection{tables: map[string]int{}, columns: map[string]map[string]string{}, versions: map[int]string{}}
	query := func(stmt string, arg any) *gocql.Query {
		if h := o.hooks.statement; h != nil {
			h(stmt)
		}
		return session.Session.Query(stmt, arg).WithContext(ctx).Idempotent(true)
	}
	var replication map[string]string
	switch err := one(query(selectKeyspace, keyspace), &replication); {
	case errors.Is(err, gocql.ErrNotFound):
		return in, nil
	case err != nil:
		return in, schemaFailed("look for keyspace "+keyspace, err)
	}
	in.keyspace, in.copies = true, copies(replication)
	var table, column, kind string
	var number, ttl int
	rows := func(what string, iter *gocql.Iter, each func(), into ...any) error {
		for iter.Scan(into...) {
			each()
		}
		return schemaFailed("read "+what+" of keyspace "+keyspace, iter.Close())
	}
	if err := rows("the tables", query(selectTables, keyspace).Iter(), func() { in.tables[table] = ttl }, &table, &ttl); err != nil {
		return in, err
	}
	if err := rows("the columns", query(selectColumns, keyspace).Iter(), func() {
		if in.columns[table] == nil {
			in.columns[table] = map[string]string{}
		}
		in.columns[table][column] = kind
	}, &table, &column, &kind); err != nil {
		return in, err
	}
	if _, ok := in.tables["schema_versions"]; !ok {
		return in, nil
	}
	var digest string
	if err := rows("the schema versions", query(fmt.Sprintf(selectVersions, keyspace), schemaName).Iter(), func() { in.versions[number] = digest }, &number, &digest); err != nil {
		return in, err
	}
	if _, ok := in.tables["schema_retention"]; !ok {
		return in, nil
	}
	var since, retention int
	err := rows("the retention", query(fmt.Sprintf(selectRetention, keyspace), schemaName).Iter(), func() {
		in.lives = append(in.lives, lifetime{mailbox.Day(since), retention})
	}, &since, &retention)
	in.lives.sort()
	return in, err
}

// tooNew refuses a schema that this build does not know.
func (in *inspection) tooNew(keyspace string, files []schemaFile) error {
	for v, digest := range in.versions {
		if v >= len(files) {
			return fmt.Errorf("%w: keyspace %s has schema version %d, this build knows version %d: use the build that applied it, or a newer one", mailbox.ErrSchema, keyspace, v, len(files)-1)
		}
		if digest != files[v].digest {
			return fmt.Errorf("%w: keyspace %s has another text of schema file %s than this build: use the build that applied it", mailbox.ErrSchema, keyspace, files[v].name)
		}
	}
	return nil
}

// lost refuses to make tables anew that were there: they would be empty, and what
// was in them is part of every mailbox.
func (in *inspection) lost(keyspace string, files []schemaFile) error {
	var gone []string
	for _, f := range files {
		if _, applied := in.versions[f.version]; !applied {
			continue
		}
		tables, err := schemaTables([]schemaFile{f})
		if err != nil {
			return err
		}
		for _, t := range tables {
			if _, ok := in.tables[t.name]; !ok {
				gone = append(gone, t.name)
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	slices.Sort(gone)
	return fmt.Errorf("%w: keyspace %s has lost tables that it had: %s: restore them from a backup, or use another keyspace", mailbox.ErrSchema, keyspace, strings.Join(gone, ", "))
}

// check reports whether a store of this build and retention can open on what was
// found.
func (in *inspection) check(keyspace string, files []schemaFile, retentionDays int) error {
	if !in.keyspace {
		return fmt.Errorf("%w: there is no keyspace %s: run `laneway schema apply --create-keyspace`", mailbox.ErrSchema, keyspace)
	}
	if len(in.versions) == 0 {
		return fmt.Errorf("%w: keyspace %s has no Laneway schema: %s", mailbox.ErrSchema, keyspace, applyHint)
	}
	if err := in.tooNew(keyspace, files); err != nil {
		return err
	}
	for _, f := range files {
		if _, ok := in.versions[f.version]; !ok {
			return fmt.Errorf("%w: keyspace %s has an older schema: %s is missing: %s", mailbox.ErrSchema, keyspace, f.name, applyHint)
		}
	}
	if err := in.checkTables(keyspace, files); err != nil {
		return err
	}
	return in.checkRetention(keyspace, files, retentionDays)
}

// checkTables compares the tables with those of the files.
func (in *inspection) checkTables(keyspace string, files []schemaFile) error {
	tables, err := schemaTables(files)
	if err != nil {
		return err
	}
	var wrong []string
	for _, t := range tables {
		if _, ok := in.tables[t.name]; !ok {
			wrong = append(wrong, "table "+t.name+" is missing")
			continue
		}
		for column, kind := range t.columns {
			if has := in.columns[t.name][column]; has != kind {
				wrong = append(wrong, fmt.Sprintf("column %s.%s is %q, not %q", t.name, column, has, kind))
			}
		}
		if t.lifetime(mailbox.MinRetentionDays) == 0 && in.tables[t.name] != 0 {
			wrong = append(wrong, fmt.Sprintf("table %s has a default_time_to_live of %d s and must have none", t.name, in.tables[t.name]))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%w: keyspace %s was changed by hand: %s", mailbox.ErrSchema, keyspace, strings.Join(wrong, ", "))
}

// checkRetention refuses tables whose rows go before their day expires.
func (in *inspection) checkRetention(keyspace string, files []schemaFile, retentionDays int) error {
	tables, err := schemaTables(files)
	if err != nil {
		return err
	}
	var short []string
	for _, t := range tables {
		if need, has := t.lifetime(retentionDays), in.tables[t.name]; need > 0 && has != 0 && has < need {
			short = append(short, fmt.Sprintf("of %s live %s and have to live %s", t.name, inDays(has), inDays(need)))
		}
	}
	if len(short) > 0 {
		slices.Sort(short)
		return fmt.Errorf("%w: keyspace %s does not hold a retention of %d days: rows %s: %s with that retention, or set a shorter one",
			mailbox.ErrSchema, keyspace, retentionDays, strings.Join(short, ", "), applyHint)
	}
	if last := in.lives.last(); retentionDays > last {
		return fmt.Errorf("%w: the schema of keyspace %s was applied for a retention of %d days, this node has %d: %s with that retention, or set a shorter one",
			mailbox.ErrSchema, keyspace, last, retentionDays, applyHint)
	}
	return nil
}

func inDays(seconds int) string {
	if seconds%daySeconds != 0 {
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d days", seconds/daySeconds)
}
