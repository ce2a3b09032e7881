package membership

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// Generations returns from which conversation_seq on each generation of a group
// after the first is in use, that of generation 2 first.
type Generations func(ctx context.Context, g mailbox.Group) ([]uint64, error)

// maxStarts is of how many groups the generations are remembered.
const maxStarts = 16_384

// checkGeneration refuses a version of a generation that was over at a
// conversation_seq. A record of before the renumbering goes on being read with
// its own generation, however late it comes.
//
// What is remembered is enough: whoever uses a generation that is not known yet
// makes the group be read again, and a renumbering's own record, which comes
// before all of its generation, does so too.
func (s *Snapshots) checkGeneration(ctx context.Context, v mailbox.GroupVersion, seq uint64) error {
	if s.Generations == nil {
		return nil
	}
	s.mu.Lock()
	starts, known := s.starts[v.Group]
	s.mu.Unlock()
	if !known || v.Generation > uint64(len(starts))+1 {
		x, err, _ := s.flight.Do(flightKey('g', mailbox.GroupVersion{Group: v.Group}, 0), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
			defer cancel()
			return s.Generations(ctx, v.Group)
		})
		if err != nil {
			return unavailable(fmt.Sprintf("generations of group %q/%q", v.Tenant, v.ID), err)
		}
		starts = x.([]uint64)
		s.mu.Lock()
		if len(s.starts) >= maxStarts {
			clear(s.starts)
		}
		s.starts[v.Group] = starts
		s.mu.Unlock()
	}
	if next := v.Generation; next > 0 && next <= uint64(len(starts)) && starts[next-1] <= seq {
		return fmt.Errorf("%w: %s is used at %d, generation %d began at %d", ErrMembershipVersionVoided, versionName(v), seq, next+1, starts[next-1])
	}
	return nil
}
