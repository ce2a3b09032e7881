package conversation

import (
	"context"
	"errors"
	"fmt"

	"github.com/laneway/laneway/quota"
)

// Quota bounds what each tenant has dispatched (design 5.4). *quota.Limiter is
// one.
type Quota interface {
	Charge(ctx context.Context, r quota.Request) (*quota.Receipt, error)
}

// bill is what a request was charged. A request is charged once, however often
// its compare-and-set is lost, and by the size that its audience had at the first
// try; what was answered before is found before there is a charge.
type bill struct {
	receipt *quota.Receipt
	// used: the record is decided, or may be.
	used bool
}

// settle gives back what nothing came of: the caller went away while it waited,
// the store refused, or somebody else committed the same message meanwhile.
func (b *bill) settle() {
	if b.receipt != nil && !b.used {
		b.receipt.Refund()
	}
}

// charge takes the plan's cost from the tenant's bucket. again says that the
// request has to look anew: it has waited without the turn, so that what others
// committed before is answered meanwhile; or it would be refused by what is
// remembered of the conversation, which another process may have moved on with
// this very message.
func (s *Service) charge(ctx context.Context, st **state, b *bill, p *plan, remembered bool) (again bool, err error) {
	if s.cfg.Quota == nil || b.receipt != nil || p.cost == 0 {
		return false, nil
	}
	c := (*st).conversation
	b.receipt, err = s.cfg.Quota.Charge(ctx, quota.Request{Tenant: c.Tenant, Cost: p.cost, Must: p.must})
	switch {
	case errors.Is(err, quota.ErrExceeded) && remembered:
		(*st).forget()
		return true, nil
	case err != nil:
		return false, fmt.Errorf("conversation %q: %w", c.ID, err)
	case b.receipt.Delay() == 0:
		return false, nil
	}
	s.states.release(*st)
	*st = nil
	if err := b.receipt.Wait(ctx); err != nil {
		return false, fmt.Errorf("waiting for the quota of tenant %q: %w", c.Tenant, err)
	}
	*st, err = s.turn(ctx, c)
	return true, err
}
