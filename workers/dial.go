package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
)

const (
	// DefaultNamespace is where Laneway's workflows live.
	DefaultNamespace = "laneway"

	dialTimeout = 15 * time.Second
)

var (
	// ErrUnreachable: no Temporal answers at the address.
	ErrUnreachable = errors.New("Temporal cannot be reached")
	// ErrNamespace: Temporal answers, but has no such namespace.
	ErrNamespace = errors.New("Temporal has no such namespace")
)

// DialOptions say which Temporal to use.
type DialOptions struct {
	Address   string // HOST:PORT
	Namespace string // DefaultNamespace if empty
	// Identity names this node in the Web UI; empty: process and host.
	Identity string
	// TLS and APIKey are for clusters that ask for them.
	TLS    *tls.Config
	APIKey string
	// Metrics, if set, gets the SDK's metrics; see [PrometheusMetrics].
	Metrics client.MetricsHandler
	// Interceptors trace clients; those that are worker interceptors too also
	// trace workers.
	Interceptors []interceptor.ClientInterceptor
	Logger       *slog.Logger // nil: slog.Default
}

// Dial connects to Temporal and checks that the namespace is there. An error
// says what to do.
func Dial(ctx context.Context, o DialOptions) (client.Client, error) {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	options := client.Options{
		HostPort: o.Address, Namespace: o.Namespace, Identity: o.Identity,
		Logger:         log.NewStructuredLogger(slog.New(newRoutine(o.Logger.Handler()))),
		MetricsHandler: o.Metrics, Interceptors: o.Interceptors,
		ConnectionOptions: client.ConnectionOptions{TLS: o.TLS},
	}
	if o.APIKey != "" {
		options.Credentials = client.NewAPIKeyStaticCredentials(o.APIKey)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: start it (`laneway dev` brings its own), or correct the address: %w", ErrUnreachable, o.Address, err)
	}
	if err := checkNamespace(ctx, c, o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func checkNamespace(ctx context.Context, c client.Client, o DialOptions) error {
	_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: o.Namespace})
	var missing *serviceerror.NamespaceNotFound
	var notFound *serviceerror.NotFound
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing), errors.As(err, &notFound):
		return fmt.Errorf("%w: %q at %s: `laneway setup` registers it", ErrNamespace, o.Namespace, o.Address)
	default:
		return fmt.Errorf("namespace %q at %s: %w", o.Namespace, o.Address, err)
	}
}
