package pebble

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// registrySetting begins the names of registry rows among the settings.
const registrySetting = "registry/"

// LoadRegistry implements mailbox.RegistryStore.
func (s *Store) LoadRegistry(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	return s.registryRow(name)
}

func (s *Store) registryRow(name string) ([]byte, uint64, error) {
	row, err := s.get(settingKey(registrySetting + name))
	if err != nil || row == nil {
		return nil, 0, err
	}
	return rows.DecodeHead(row)
}

// CompareAndSetRegistry implements mailbox.RegistryStore.
func (s *Store) CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.registryMu.Lock()
	defer s.registryMu.Unlock()
	_, stored, err := s.registryRow(name)
	if err != nil {
		return err
	}
	if stored != revision {
		return fmt.Errorf("%w: the registry row %s is at revision %d, not %d", mailbox.ErrHeadMoved, name, stored, revision)
	}
	b := s.db.NewBatch()
	_ = b.Set(settingKey(registrySetting+name), rows.EncodeHead(revision+1, data), nil)
	return s.commit(b, true)
}
