package scylla

import (
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// fatal ends service with err, once: nothing is served any more, and the process
// is told. Servers that cannot be reached are not fatal. A keyspace that was
// changed under the store is: what it would write or find is not known.
func (s *Store) fatal(err error) error {
	err = fmt.Errorf("%w: %w", mailbox.ErrStoreFailed, err)
	if s.failure.CompareAndSwap(nil, &err) {
		s.opts.Logger.Error("the store has failed", "err", err)
		if s.opts.OnFatal != nil {
			go s.opts.OnFatal(err)
		}
	}
	return err
}
