package scylla

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2"

	"github.com/laneway/laneway/mailbox"
)

// schemaFailed gives an error of a look at the schema, or of a change of it, its
// operation, and says what the server's text leaves out.
func schemaFailed(what string, err error) error {
	if err == nil {
		return nil
	}
	var u *gocql.RequestErrUnavailable
	if errors.As(err, &u) {
		return fmt.Errorf("scylla: %s: %w: %d of the %d replicas that %s needs are alive; start the keyspace's servers that are down: %w",
			what, mailbox.ErrStoreUnavailable, u.Alive, u.Required, u.Consistency, err)
	}
	return fmt.Errorf("scylla: %s: %w", what, err)
}

// connectAnywhere is connect without a keyspace. With local_dc the driver uses the
// servers of that datacenter alone, and what it says when there are none is about
// its policy or its connections.
func (o *Options) connectAnywhere(ctx context.Context, t *target, hosts ...string) (gocqlx.Session, error) {
	session, err := o.connect(ctx, t, "", hosts...)
	if err == nil || t.localDC == "" {
		return session, err
	}
	if text := err.Error(); !strings.Contains(text, "not found in the topology") && !strings.Contains(text, gocql.ErrNoConnectionsStarted.Error()) {
		return session, err // it has another cause
	}
	return session, fmt.Errorf("no server of datacenter %q (local_dc in the store URL) answered: check the name, which `nodetool status` tells, and that its servers run: %w", t.localDC, err)
}
