package scylla

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// TestARetentionThatDoesNotFitNamesEveryTable: all of them, in one order.
func TestARetentionThatDoesNotFitNamesEveryTable(t *testing.T) {
	files, err := schemaFiles()
	require.NoError(t, err)
	tables, err := schemaTables(files)
	require.NoError(t, err)
	in := inspection{tables: map[string]int{}}
	var limited []string
	for _, table := range tables {
		if in.tables[table.name] = table.lifetime(7); in.tables[table.name] > 0 {
			limited = append(limited, table.name)
		}
	}
	require.Greater(t, len(limited), 1)
	said := in.checkRetention("k", files, 14)
	for _, name := range limited {
		require.ErrorContains(t, said, "of "+name+" live ")
	}
	for range 20 {
		require.EqualError(t, in.checkRetention("k", files, 14), said.Error())
	}
}

// TestADatacenterThatIsNotThereIsNamed: by who opens, and by who applies.
func TestADatacenterThatIsNotThereIsNamed(t *testing.T) {
	o := freshKeyspace(t, testservers.SharedCassandra(t))
	o.URL += "?local_dc=nope"
	_, err := Open(t.Context(), o)
	require.ErrorContains(t, err, `no server of datacenter "nope"`)
	_, err = ApplySchema(t.Context(), SchemaOptions{Options: o, CreateKeyspace: single})
	require.ErrorContains(t, err, `no server of datacenter "nope"`)
}

// TestTooFewServersForTheSchemaAreCounted, since the server says only that it has
// not enough.
func TestTooFewServersForTheSchemaAreCounted(t *testing.T) {
	o := freshKeyspace(t, testservers.SharedCassandra(t))
	_, err := ApplySchema(t.Context(), SchemaOptions{Options: o, CreateKeyspace: &Replication{Factor: 3}})
	require.ErrorIs(t, err, mailbox.ErrStoreUnavailable)
	require.ErrorContains(t, err, "1 of the 2 replicas that QUORUM needs are alive; start the keyspace's servers")
	_, err = Open(t.Context(), o)
	require.ErrorContains(t, err, "1 of the 2 replicas that QUORUM needs are alive")
}
