package node

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// served answers the API's questions about the node's shards.
type served Node

func (s *served) shard(i mailbox.Shard) (*ingest.Shard, error) {
	if int(i) >= len(s.shards) || s.lost[i].Load() {
		return nil, &mailbox.MovedError{Shard: i}
	}
	if sh := s.shards[i]; sh.Serves() {
		return sh, nil
	}
	return nil, &mailbox.MovedError{Shard: i} // perhaps: its lease could have ended
}

// Watermark implements api.Shards.
func (s *served) Watermark(p mailbox.Placement) (mailbox.Seq, error) {
	sh, err := s.shard(p.Shard)
	if err != nil {
		return 0, err
	}
	if why := sh.Refused(p.Lane); why != "" {
		return 0, fmt.Errorf("%w: %s", api.ErrLaneRefused, why)
	}
	if sh.Opening(p.Lane) {
		return 0, fmt.Errorf("%w: shard %d lane %d", api.ErrLaneOpening, p.Shard, p.Lane)
	}
	return sh.W(p.Lane), nil
}

// Watch implements api.Shards.
func (s *served) Watch(u mailbox.User) (changed <-chan struct{}, stop func(), err error) {
	if _, err := s.shard(mailbox.Place(u, s.cfg.Shards).Shard); err != nil {
		return nil, nil, err
	}
	changed, stop = s.hub.Watch(u)
	return changed, stop, nil
}

// Epoch implements api.Shards.
func (s *served) Epoch(shard mailbox.Shard) mailbox.Epoch {
	sh, err := s.shard(shard)
	if err != nil {
		return 0
	}
	return sh.Ownership().Epoch
}

// Status implements api.Shards.
func (s *served) Status(ctx context.Context, lanes bool) ([]*lanewayv1.ShardStatus, error) {
	out := make([]*lanewayv1.ShardStatus, len(s.shards))
	for i, sh := range s.shards {
		st, err := s.store.LoadShard(ctx, mailbox.Shard(i))
		if err != nil {
			return nil, err
		}
		in := sh.Status(lanes)
		lo, hi := in.W.W[0], in.W.W[0]
		for _, w := range in.W.W {
			lo, hi = min(lo, w), max(hi, w)
		}
		o := &lanewayv1.ShardStatus{
			Shard: uint32(i), Owner: st.Owner, Address: st.Address, Epoch: uint32(in.Epoch), LeaseUntilMs: st.LeaseUntil.UnixMilli(),
			WatermarkMin: uint64(lo), WatermarkMax: uint64(hi), Frontier: uint64(in.W.F), Lag: in.Lag,
			Unfinished: uint32(in.Unfinished), Slow: uint32(in.Slow),
		}
		for _, l := range in.Lanes {
			o.Lanes = append(o.Lanes, &lanewayv1.LaneStatus{
				Lane: uint32(l.Lane), Watermark: uint64(l.W), Floor: uint64(l.Floor), Unfinished: uint32(l.Unfinished), State: l.State,
			})
		}
		out[i] = o
	}
	return out, nil
}

// Dispatches implements api.Shards: what is in flight, from Temporal.
func (s *served) Dispatches(ctx context.Context, limit int) ([]*lanewayv1.DispatchStatus, error) {
	c := (*Node)(s).Temporal()
	if c == nil {
		return nil, fmt.Errorf("%w: %w", api.ErrEngineUnavailable, errNoEngine)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	in, err := workers.ListDispatches(ctx, c, limit)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrEngineUnavailable, err)
	}
	out := make([]*lanewayv1.DispatchStatus, len(in))
	for i, d := range in {
		seq, err := mailbox.ParseSeq(d.Seq)
		if err != nil {
			return nil, err
		}
		out[i] = &lanewayv1.DispatchStatus{
			DispatchId: d.Dispatch, Shard: uint32(d.Shard), Seq: uint64(seq), TenantId: d.Tenant, GroupId: d.Group, State: d.State,
			WorkflowId: d.WorkflowID, RunId: d.RunID, StartedAtMs: d.Started.UnixMilli(), Details: details(&d),
		}
	}
	return out, nil
}

// details is what a workflow says of itself, in a line.
func details(d *workers.DispatchStatus) string {
	switch {
	case d.Progress != nil:
		p := d.Progress
		text := fmt.Sprintf("%d of %d lanes done, %d entries", p.LanesDone, p.Lanes, p.Entries)
		for _, s := range workflows.GroupSlow(p.Slow) {
			are := "is"
			if len(s.Lanes) > 1 {
				are = "are"
			}
			text += fmt.Sprintf("; %s %s slow: %s", s.Names(), are, s.Error)
		}
		return text
	case d.LaneProgress != nil:
		p := d.LaneProgress
		text := fmt.Sprintf("%d of %d chunks done", p.ChunksDone, p.Chunks)
		if p.Reason != "" {
			text += ": " + p.Reason
		}
		return text
	default:
		return d.Unanswered
	}
}
