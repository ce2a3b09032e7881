package node

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/stores/redis"
	"github.com/laneway/laneway/stores/scylla"
)

// checkStoreURL looks at what only the store knows of its URL, without a server: a
// mistake in it is one of the configuration.
func checkStoreURL(key string, c *config.Config) error {
	var err error
	switch c.Store.Kind() {
	case config.Redis:
		err = redis.CheckURL(c.Store.URL)
	case config.Scylla:
		err = scylla.CheckURL(c.Store.URL)
	}
	if err == nil {
		return nil
	}
	_, what, _ := strings.Cut(err.Error(), ": ") // without the package
	return &config.Error{Problems: []config.Problem{{Key: key, Source: c.Store.Shown(), Message: what}}}
}

// unreachable reports whether an error of opening a store says that nothing
// answered: then, and only then, it may have to be started. What a server that
// answered says is wrong, it says itself.
func unreachable(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, new(*net.DNSError)) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	for _, text := range []string{"connection refused", "no such host", "no route to host", "i/o timeout"} { // all that the driver of CQL tells
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
