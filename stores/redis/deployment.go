package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// EnsureDeployment implements mailbox.ShardStore: one command writes the row if
// there is none and returns the one that was there. It comes before every other
// write of a process.
func (s *Store) EnsureDeployment(ctx context.Context, d mailbox.Deployment) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if d.ShardCount != s.opts.ShardCount {
		return fmt.Errorf("%w: shard_count is %d in the deployment and %d in the store's options", mailbox.ErrDeploymentMismatch, d.ShardCount, s.opts.ShardCount)
	}
	if err := s.settle(ctx); err != nil {
		return fmt.Errorf("deployment: %w", err)
	}
	row, err := s.client().SetArgs(ctx, s.deploymentKey(), rows.EncodeDeployment(d), goredis.SetArgs{Mode: "NX", Get: true}).Result()
	if errors.Is(err, goredis.Nil) {
		return nil // there was none
	}
	if err != nil {
		return s.serverError("deployment", err)
	}
	stored, err := rows.DecodeDeployment([]byte(row))
	if err != nil {
		return err
	}
	return d.Check(stored)
}
