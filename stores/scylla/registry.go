package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// registrySetting begins the names of registry rows among the settings.
const registrySetting = "registry/"

// LoadRegistry implements mailbox.RegistryStore. The read is serial: it sees every
// compare-and-set that was answered.
func (s *Store) LoadRegistry(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	body, revision, err := s.readSetting(ctx, registrySetting+name)
	return body, uint64(revision), err
}

// CompareAndSetRegistry implements mailbox.RegistryStore.
func (s *Store) CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	from, err := storedRevision(revision)
	if err != nil {
		return err
	}
	applied, err := s.moveSetting(ctx, registrySetting+name, from, data)
	if err == nil && !applied {
		err = fmt.Errorf("%w: the registry row %s is not at revision %d", mailbox.ErrHeadMoved, name, revision)
	}
	return err
}
