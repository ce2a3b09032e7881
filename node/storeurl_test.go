package node

import (
	"context"
	"errors"
	"net/url"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/testservers"
)

// storeError opens the store of a URL, as a node and as `laneway check` tell it.
func storeError(t *testing.T, store string) (fix string, told error) {
	t.Helper()
	l, err := config.Load(config.Input{Environ: []string{"LANEWAY_STORE_URL=" + store}})
	require.NoError(t, err)
	st, err := OpenStore(t.Context(), &l.Config, StoreOptions{Still: true})
	if err == nil {
		err = st.EnsureDeployment(t.Context(), deployment(&l.Config, l.OutboxPartitions))
		require.NoError(t, st.Close())
	}
	require.Error(t, err)
	return storeFix(&l.Config, err), withStoreFix(&l.Config, err)
}

// TestABadStoreURLIsAConfigurationError: nobody is told to start a server.
func TestABadStoreURLIsAConfigurationError(t *testing.T) {
	for store, says := range map[string]string{
		"redis://u:hunter2@127.0.0.1:1/mailboxes":          "not the number of a database",
		"redis://u:hunter2@127.0.0.1:1/0?db=3":             `a parameter "db"`,
		"cql://u:hunter2@127.0.0.1:1/k?consistency=one":    `consistency "one"`,
		"cql://u:hunter2@127.0.0.1:1/k?datacenter=dc1":     `unknown option "datacenter"`,
		"rediss://127.0.0.1:1/0?tls_ca_file=/no/such/file": "/no/such/file",
	} {
		fix, err := storeError(t, store)
		require.ErrorAs(t, err, new(*config.Error), store)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "store.url")
		require.NotContains(t, err.Error()+fix, "start")
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// TestOnlyAServerThatIsNotThereIsToBeStarted: what one that answers refuses, it
// says itself.
func TestOnlyAServerThatIsNotThereIsToBeStarted(t *testing.T) {
	for _, store := range []string{"redis://127.0.0.1:1/0", "cql://127.0.0.1:1/k"} {
		fix, err := storeError(t, store)
		require.ErrorContains(t, err, "start it, or correct store.url")
		require.Contains(t, fix, "start ")
	}
	require.True(t, unreachable(context.DeadlineExceeded))
	require.False(t, unreachable(errors.New("MISCONF")))

	server := testservers.StartRedis(t)
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	c := goredis.NewClient(&goredis.Options{Addr: u.Host})
	defer c.Close()
	u.Path = "/99999"
	refused := map[string]string{u.String(): "correct the path of the store's URL"}
	u.Path, u.User = "/0", url.UserPassword("default", "wrong")
	require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "other", "on", ">right", "~*", "+@all").Err())
	u.User = url.UserPassword("other", "wrong")
	refused[u.String()] = "refuses the user name or password"
	for store, says := range refused {
		fix, err := storeError(t, store)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error()+fix, "start ")
	}
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	fix, err := storeError(t, server.URL())
	require.ErrorContains(t, err, "raise maxmemory")
	require.NotContains(t, err.Error()+fix, "start ")
}
