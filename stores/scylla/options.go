package scylla

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
)

// Options configure a store.
type Options struct {
	// URL is cql://[user:password@]host[:port][,host[:port]...]/keyspace with the
	// options tls, ca_file, server_name, local_dc and consistency (quorum or
	// local_quorum). The port is 9042 when none is given. With local_quorum all
	// processes have to be in one datacenter, and local_dc has to name it.
	URL string
	// TLS replaces what the URL says about TLS; nil leaves it to the URL.
	TLS *tls.Config
	// ShardCount is the deployment's immutable shard_count.
	ShardCount int
	// RetentionDays is the mailbox retention; 0 is the default of 14.
	RetentionDays int
	// Clock tells the time that days and leases end by; nil is time.Now.
	Clock func() time.Time
	// Logger gets the driver's messages and failures; nil discards them.
	Logger *slog.Logger
	// OnFatal is called once, on its own goroutine, with an error after which the
	// store cannot serve (it matches mailbox.ErrStoreFailed).
	OnFatal func(error)
	// Timeout is how long one request to the server may take; 0 is 5 s.
	Timeout time.Duration
	// Writes is how many requests of AppendBatch are on their way at once, of all
	// calls together; 0 is 128.
	Writes int
	// ExpireEvery is how often expired days are promoted; 0 is every 10 minutes,
	// negative only when ExpireDays is called.
	ExpireEvery time.Duration

	hooks hooks
}

// hooks let tests look at and stand between the store and its server.
type hooks struct {
	// statement is told every statement that is sent.
	statement func(stmt string)
	// translate replaces the addresses that servers give.
	translate gocql.AddressTranslator
	// realTime is the time that the servers' TTLs run by; nil is time.Now.
	realTime func() time.Time
	// progressAfter replaces the constant of that name; 0 leaves it.
	progressAfter int
}

// DefaultRetentionDays is the mailbox retention when none is set.
const DefaultRetentionDays = 14

func (o Options) withDefaults() (Options, error) {
	if o.ShardCount < 1 {
		return o, fmt.Errorf("scylla: shard count %d: at least 1 is needed", o.ShardCount)
	}
	if o.RetentionDays == 0 {
		o.RetentionDays = DefaultRetentionDays
	}
	if err := checkRetention(o.RetentionDays); err != nil {
		return o, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.ExpireEvery == 0 {
		o.ExpireEvery = 10 * time.Minute
	}
	if o.Writes <= 0 {
		o.Writes = 128
	}
	return o, nil
}

func checkRetention(days int) error {
	if days < mailbox.MinRetentionDays || days > mailbox.MaxRetentionDays {
		return fmt.Errorf("scylla: retention of %d days: %d to %d are allowed", days, mailbox.MinRetentionDays, mailbox.MaxRetentionDays)
	}
	return nil
}
