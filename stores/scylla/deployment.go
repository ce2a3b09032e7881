package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// EnsureDeployment implements mailbox.ShardStore. The first start writes the row
// if there is none; of several first starts one does, and the others compare.
func (s *Store) EnsureDeployment(ctx context.Context, d mailbox.Deployment) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if d.ShardCount != s.opts.ShardCount {
		return fmt.Errorf("%w: shard_count is %d in the deployment and %d in the store's options", mailbox.ErrDeploymentMismatch, d.ShardCount, s.opts.ShardCount)
	}
	body, revision, err := s.readSetting(ctx, deploymentSetting)
	if err != nil {
		return err
	}
	if revision == 0 {
		applied, err := s.moveSetting(ctx, deploymentSetting, 0, rows.EncodeDeployment(d))
		if err != nil || applied {
			return err
		}
		if body, _, err = s.readSetting(ctx, deploymentSetting); err != nil {
			return err
		}
	}
	stored, err := rows.DecodeDeployment(body)
	if err != nil {
		return err
	}
	return d.Check(stored)
}
