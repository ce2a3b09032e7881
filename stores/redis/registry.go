package redis

import "context"

// LoadRegistry implements mailbox.RegistryStore.
func (s *Store) LoadRegistry(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	return s.headRow(ctx, "registry row "+name, s.registryKey(name))
}

// CompareAndSetRegistry implements mailbox.RegistryStore. When the answer was lost
// the error is ErrOutcomeUnknown.
func (s *Store) CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.setHead(ctx, "registry row "+name, []string{s.registryKey(name)}, revision, data)
}
