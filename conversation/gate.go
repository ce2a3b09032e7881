package conversation

import (
	"context"
	"errors"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// CommitStore is the store's row about the outbox, and whether the store may come
// back without its last writes. Every mailbox.Store is one.
type CommitStore interface {
	mailbox.CommitStore
	Incarnation() string
}

// Outbox is the outbox topic as recovery and the heartbeat need it.
// *broker.OutboxLog is one.
type Outbox interface {
	// Starts and Ends return each partition's bounds; an end is above every record
	// that was acknowledged before the call.
	Starts(ctx context.Context) ([]int64, error)
	Ends(ctx context.Context) ([]int64, error)
	// Append appends a record that is no message and returns its offset once the
	// broker has acknowledged it. mailbox.ErrOutcomeUnknown: it is there, and the
	// broker did not say where.
	Append(ctx context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error)
	// Read calls f with the records from an offset up to, and not including, the
	// one at end, in log order. f is not called by two goroutines at a time.
	Read(ctx context.Context, partition int32, from, end int64, f func([]records.Logged) error) error
}

// A Service works with one incarnation of its store. While that one lives the
// gate is passed with one atomic load; it opens when Recover has made sure that
// the store has what the outbox has, and closes for good when a store operation
// says that the server is another one: what this process knows of heads is then
// of no use, and the next service begins with Recover.

func (s *Service) lossy() bool { return s.incarnation != "" }

// Closed returns nil when commits are open, else why they are not, as an error
// that matches ErrRecovering.
func (s *Service) Closed() error {
	if err := s.gate.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Service) shut(why error) {
	err := fmt.Errorf("%w: %w", ErrRecovering, why)
	s.gate.Store(&err)
}

// notice closes the gate when err says that the store's server is another one.
// Such an error is never tried again here; it goes to the caller.
func (s *Service) notice(err error) {
	if errors.Is(err, mailbox.ErrStoreRestarted) {
		s.shut(mailbox.ErrStoreRestarted)
	}
}

var errNotRecovered = errors.New("the store may have lost its last writes, and they have not been made good yet")

// open lets requests in; their records carry the epoch.
func (s *Service) open(epoch uint64) {
	s.epoch.Store(epoch)
	s.states.dropIdle()
	s.gate.Store(nil)
}
