package sim

import (
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/metamorphic/naive"
)

// server is the store's server. A lossy one comes back without its last writes
// when it is restarted.
type server struct {
	shards int
	lossy  bool
	run    int
	store  *naive.Store
	writes []write
	at     time.Time // while writes are made again
}

// write is a write as it was made.
type write struct {
	run  int
	at   time.Time
	make func(mailbox.Store) error
}

func newServer(shards int, lossy bool) *server {
	s := &server{shards: shards, lossy: lossy, run: 1}
	s.store = s.open()
	return s
}

func (s *server) open() *naive.Store {
	return naive.New(naive.Options{ShardCount: s.shards, RetentionDays: 20, Clock: func() time.Time {
		if !s.at.IsZero() {
			return s.at
		}
		return time.Now()
	}})
}

func (s *server) name(run int) string {
	if !s.lossy {
		return ""
	}
	return fmt.Sprintf("run %d", run)
}

// do carries out a call that was sent to a run of the server.
func (s *server) do(run int, w bool, f func(mailbox.Store) error) error {
	if run != s.run {
		return fmt.Errorf("%w: %w: run %d is now run %d", mailbox.ErrStoreFailed, mailbox.ErrStoreRestarted, run, s.run)
	}
	err := f(faulty.NewRun(s.store, s.name(run)))
	if err == nil && w && s.lossy {
		s.writes = append(s.writes, write{run, time.Now(), f})
	}
	return err
}

// restart ends the run and begins another without the last writes.
func (s *server) restart(lose int) error {
	s.run++
	s.writes = s.writes[:max(len(s.writes)-lose, 0)]
	s.store = s.open()
	defer func() { s.at = time.Time{} }()
	for _, w := range s.writes {
		s.at = w.at
		if err := w.make(faulty.NewRun(s.store, s.name(w.run))); err != nil {
			return fmt.Errorf("a write made again: %w", err)
		}
	}
	return nil
}
