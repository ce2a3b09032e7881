package scylla

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// freshKeyspace names a keyspace that does not exist.
func freshKeyspace(tb testing.TB, c *testservers.Cassandra) Options {
	tb.Helper()
	return Options{
		URL: c.URL(fmt.Sprintf("laneway_%d", keyspaces.Add(1))), TLS: c.ServerTLS, ShardCount: 4, RetentionDays: 7,
		Timeout: 20 * time.Second, ExpireEvery: -1,
	}
}

var single = &Replication{Factor: 1}

func apply(tb testing.TB, o Options) SchemaApplied {
	tb.Helper()
	applied, err := ApplySchema(tb.Context(), SchemaOptions{Options: o, CreateKeyspace: single})
	require.NoError(tb, err)
	return applied
}

// admin sends a statement that no store would.
func admin(tb testing.TB, o Options, stmt string, args ...any) {
	tb.Helper()
	o, err := o.withDefaults()
	require.NoError(tb, err)
	target, err := parseURL(o.URL)
	require.NoError(tb, err)
	s, err := o.connect(tb.Context(), &target, "")
	require.NoError(tb, err)
	defer s.Close()
	require.NoError(tb, s.Session.Query(strings.ReplaceAll(stmt, "$", target.keyspace), args...).Exec())
}

func requireSchemaError(t *testing.T, o Options, parts ...string) {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err == nil {
		require.NoError(t, s.Close())
	}
	require.ErrorIs(t, err, mailbox.ErrSchema)
	for _, p := range parts {
		require.ErrorContains(t, err, p)
	}
}

func TestOpenSaysWhatIsWrongWithTheSchema(t *testing.T) {
	c := testservers.SharedCassandra(t)
	o := freshKeyspace(t, c)
	requireSchemaError(t, o, "no keyspace", "laneway schema apply")
	_, err := ApplySchema(t.Context(), SchemaOptions{Options: o})
	require.ErrorIs(t, err, mailbox.ErrSchema, "a keyspace is made only when asked for")

	admin(t, o, "CREATE KEYSPACE $ WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	requireSchemaError(t, o, "no Laneway schema", "laneway schema apply")
	_, err = ApplySchema(t.Context(), SchemaOptions{Options: o})
	require.NoError(t, err, "a keyspace that somebody made")
	files, err := schemaFiles()
	require.NoError(t, err)
	last := files[len(files)-1]

	// Another build with other files of the same version.
	admin(t, o, "INSERT INTO $.schema_versions (schema_name, version, digest) VALUES ('laneway', ?, 'x')", last.version)
	requireSchemaError(t, o, "another text", last.name)
	admin(t, o, "INSERT INTO $.schema_versions (schema_name, version, digest) VALUES ('laneway', ?, ?)", last.version, last.digest)
	require.NoError(t, openStore(t, o).Healthy())

	// By hand.
	admin(t, o, "ALTER TABLE $.mailbox_bounds WITH default_time_to_live = 100")
	requireSchemaError(t, o, "mailbox_bounds", "must have none")
	admin(t, o, "ALTER TABLE $.mailbox_bounds WITH default_time_to_live = 0")
	admin(t, o, "DROP TABLE $.membership_slots")
	requireSchemaError(t, o, "membership_slots is missing")
	_, err = ApplySchema(t.Context(), SchemaOptions{Options: o})
	require.ErrorIs(t, err, mailbox.ErrSchema, "it would be made empty")
	require.ErrorContains(t, err, "lost tables that it had: membership_slots: restore them")
}

// TestLifetimesThatWereShortenedByHandAreRaised: the refusal says to apply the
// schema, so that does it.
func TestLifetimesThatWereShortenedByHandAreRaised(t *testing.T) {
	o := freshKeyspace(t, testservers.SharedCassandra(t))
	apply(t, o)
	admin(t, o, "ALTER TABLE $.mailbox_entries WITH default_time_to_live = 60")
	requireSchemaError(t, o, "mailbox_entries live 60 s", "laneway schema apply")
	require.False(t, apply(t, o).RetentionRaised)
	require.NoError(t, openStore(t, o).Healthy())
}

func TestOlderSchemaIsRefusedUntilItIsApplied(t *testing.T) {
	o := freshKeyspace(t, testservers.SharedCassandra(t))
	opts, err := o.withDefaults()
	require.NoError(t, err)
	target, err := parseURL(o.URL)
	require.NoError(t, err)
	files, err := schemaFiles()
	require.NoError(t, err)
	last := files[len(files)-1]
	session, err := opts.connect(t.Context(), &target, "")
	require.NoError(t, err)
	defer session.Close()
	old := applier{opts: &opts, session: session, keyspace: target.keyspace, files: files[:len(files)-1]}
	require.NoError(t, old.apply(t.Context(), single))

	requireSchemaError(t, o, "older schema", last.name, "laneway schema apply")
	applied := apply(t, o)
	require.Equal(t, []string{last.name}, applied.Files)
	require.False(t, applied.KeyspaceCreated)
	require.NoError(t, openStore(t, o).Healthy())
}

func TestNewerSchemaIsRefused(t *testing.T) {
	o := freshKeyspace(t, testservers.SharedCassandra(t))
	version := apply(t, o).Version
	admin(t, o, "INSERT INTO $.schema_versions (schema_name, version, digest) VALUES ('laneway', 99, 'x')")
	requireSchemaError(t, o, "version 99", fmt.Sprintf("version %d", version), "use the build")
	_, err := ApplySchema(t.Context(), SchemaOptions{Options: o})
	require.ErrorIs(t, err, mailbox.ErrSchema, "nor is one applied over it")
}

func TestTablesHaveTheLifetimesOfTheRetention(t *testing.T) {
	c := testservers.SharedCassandra(t)
	o := freshKeyspace(t, c)
	require.Equal(t, 7, apply(t, o).RetentionDays)
	s := openStore(t, o)
	files, err := schemaFiles()
	require.NoError(t, err)
	tables, err := schemaTables(files)
	require.NoError(t, err)
	require.Greater(t, len(tables), 15)
	days := 0
	for _, want := range tables {
		var ttl int
		var compaction map[string]string
		require.NoError(t, s.session.Session.Query("SELECT default_time_to_live, compaction FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", s.keyspace, want.name).Scan(&ttl, &compaction))
		switch want.name {
		case "mailbox_entries":
			require.Equal(t, 9*24*60*60, ttl)
		case "mailbox_days", "shard_days":
			require.Equal(t, (9+33)*24*60*60, ttl)
		default:
			require.Zero(t, ttl, want.name)
			require.NotContains(t, compaction["class"], "TimeWindow", want.name)
			continue
		}
		days++
		require.Contains(t, compaction["class"], "TimeWindowCompactionStrategy", want.name)
		require.Equal(t, "DAYS", compaction["compaction_window_unit"])
		require.Equal(t, "1", compaction["compaction_window_size"])
	}
	require.Equal(t, 3, days)
}

func TestSchemaIsAppliedOnceBySeveralAtOnce(t *testing.T) {
	c := testservers.SharedCassandra(t)
	o := freshKeyspace(t, c)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = ApplySchema(t.Context(), SchemaOptions{Options: o, CreateKeyspace: single})
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, openStore(t, o).Healthy())
	again := apply(t, o)
	require.Empty(t, again.Files)
	require.False(t, again.KeyspaceCreated)
	require.False(t, again.RetentionRaised)
}

func TestRetentionLongerThanTheTablesIsRefused(t *testing.T) {
	c := testservers.SharedCassandra(t)
	o := freshKeyspace(t, c)
	apply(t, o)
	longer := o
	longer.RetentionDays = 14
	requireSchemaError(t, longer, "14 days", "9 days", "laneway schema apply")
	shorter := o
	shorter.RetentionDays = 3
	require.NoError(t, openStore(t, shorter).Healthy())
	require.Equal(t, 7, apply(t, shorter).RetentionDays, "it is never made shorter")

	applied := apply(t, longer)
	require.True(t, applied.RetentionRaised)
	require.Equal(t, 14, applied.RetentionDays)
	s := openStore(t, longer)
	// What is there already lives as long as it did: its days expire by the old
	// retention, and those after by the new one.
	require.Len(t, s.lives, 2)
	day := s.lives[1].since
	require.Equal(t, mailbox.DayOf(time.Now().UnixMilli())+2, day)
	at := func(d mailbox.Day) int64 { return int64(d) * 24 * 60 * 60 * 1000 }
	require.Equal(t, day-1, s.lives.expired(at(day+7), 14), "the last of the old days")
	require.Equal(t, day-2, s.lives.expired(at(day+7)-1, 14))
	require.Equal(t, day-1, s.lives.expired(at(day+14), 14))
	require.Equal(t, day, s.lives.expired(at(day+15), 14), "the first of the new days")
	require.Equal(t, 7, s.lives.at(day-1))
	require.Equal(t, 14, s.lives.at(day))
}

func TestKeyspaceThatIsChangedUnderTheStoreEndsIt(t *testing.T) {
	o := freshKeyspace(t, testservers.SharedCassandra(t))
	apply(t, o)
	told := make(chan error, 2)
	o.OnFatal = func(err error) { told <- err }
	s := openStore(t, o)
	u := mailbox.User{Tenant: "t", ID: "u"}
	require.NoError(t, s.TruncateBefore(t.Context(), u, 1<<48))
	admin(t, o, "DROP TABLE $.mailbox_bounds")
	err := s.TruncateBefore(t.Context(), u, 2<<48)
	require.ErrorIs(t, err, mailbox.ErrSchema)
	require.ErrorIs(t, <-told, mailbox.ErrStoreFailed)
	require.ErrorIs(t, s.Healthy(), mailbox.ErrSchema)
	_, err = s.UserBounds(t.Context(), u)
	require.ErrorIs(t, err, mailbox.ErrStoreFailed)
	require.Empty(t, told, "once")
}

func TestCopiesOfAKeyspace(t *testing.T) {
	require.Equal(t, 3, copies(map[string]string{"class": "NetworkTopologyStrategy", "replication_factor": "3"}))
	require.Equal(t, 2, copies(map[string]string{"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "2"}))
	require.Zero(t, copies(map[string]string{"class": "LocalStrategy"}))
}

func TestOpenSaysWhyItCannotConnect(t *testing.T) {
	refused, err := freeport.Get()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = Open(ctx, Options{URL: "cql://user:hunter2@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(refused)) + "/k", ShardCount: 1})
	require.ErrorContains(t, err, "no server accepts connections")
	require.NotContains(t, err.Error(), "hunter2")

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = Open(short, Options{URL: "cql://" + silent.Addr().String() + "/k", ShardCount: 1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestOpenSaysWhyItIsRefused(t *testing.T) {
	c := testservers.StartCassandra(t, testservers.CassandraConfig{Username: "laneway", Password: "hunter2", TLS: true, FastSchema: true})
	o := freshKeyspace(t, c)
	apply(t, o)
	s := openStore(t, o)
	require.NoError(t, s.TruncateBefore(t.Context(), mailbox.User{Tenant: "t", ID: "u"}, 1))

	open := func(url string, o Options) error {
		o.URL = url
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Open(ctx, o)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "wrongword")
		return err
	}
	host := func(login, options string) string { return "cql://" + login + c.Addr + "/" + s.keyspace + options }
	require.ErrorContains(t, open(host("laneway:wrongword@", ""), o), `refuses user "laneway"`)
	require.ErrorContains(t, open(host("", ""), o), "asks for user and password")
	plain := o
	plain.TLS = nil
	require.ErrorContains(t, open(host("laneway:hunter2@", ""), plain), "does it want TLS")
	require.ErrorContains(t, open(host("laneway:hunter2@", "?tls=true"), plain), "TLS failed")
	require.ErrorContains(t, open(host("laneway:hunter2@", "?tls=true&server_name=other&ca_file="+c.CAFile), plain), "TLS failed")
	require.ErrorIs(t, open("cql://laneway:hunter2@"+c.Addr+"/other", o), mailbox.ErrSchema)

	withFile := plain
	withFile.URL = host("laneway:hunter2@", "?tls=true&ca_file="+c.CAFile)
	require.NoError(t, openStore(t, withFile).Healthy())
}

func TestTLSToAPlainServerIsNamed(t *testing.T) {
	c := testservers.SharedCassandra(t)
	_, err := Open(t.Context(), Options{URL: "cql://" + c.Addr + "/k?tls=true", ShardCount: 1})
	require.ErrorContains(t, err, "does not speak TLS")
}
