package naive_test

import (
	"testing"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/metamorphic/naive"
	"github.com/laneway/laneway/stores/storetest"
)

// TestConformance: the reference keeps the contract that it is the reference of.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, c storetest.Config) *storetest.Subject {
		s := naive.New(naive.Options{ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now})
		same := func() mailbox.Store { return s }
		return &storetest.Subject{Store: s, Reopen: same, Crash: same, Slow: true, Expire: func() error {
			s.Expire()
			return nil
		}}
	})
}
