package naive

import (
	"bytes"
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

type registryRow struct {
	data     []byte
	revision uint64
}

// LoadRegistry implements mailbox.RegistryStore.
func (s *Store) LoadRegistry(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	row := s.registry[name]
	return bytes.Clone(row.data), row.revision, nil
}

// CompareAndSetRegistry implements mailbox.RegistryStore.
func (s *Store) CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if stored := s.registry[name].revision; stored != revision {
		return fmt.Errorf("%w: the registry row %s is at revision %d, not %d", mailbox.ErrHeadMoved, name, stored, revision)
	}
	if s.registry == nil {
		s.registry = map[string]registryRow{}
	}
	s.registry[name] = registryRow{bytes.Clone(data), revision + 1}
	return nil
}
