package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/laneway/laneway/mailbox"
)

// A batch that must be written whole or not at all is one run of a script if it
// is small. A larger one is cut into steps, so that the server does other work
// between them: the first ones validate, the others write. All go in one
// pipeline, and each is made only when the one before it was: nothing is written
// when any part is refused, and what is written last stands only with the rest.

// batchStep is one run of a batch's script, behind the arguments that all have:
// the owner's, the step, the number of steps, and whether it writes.
type batchStep struct {
	keys  []string
	args  []any
	write bool
}

// errAborted is the answer of a step without the one before it, when that did not
// fail but was not run: the server had forgotten the script, and knew it again
// before the next step.
var errAborted = errors.New("a step of the batch was not run; try again")

// stepAttempts bounds how often a batch is sent whose steps were aborted so.
const stepAttempts = 3

// runSteps makes the steps of a batch in one round trip.
func (s *Store) runSteps(ctx context.Context, sc *script, own mailbox.Ownership, steps []batchStep) error {
	err := errAborted
	for attempt := 0; attempt < stepAttempts && errors.Is(err, errAborted); attempt++ {
		err = s.trySteps(ctx, sc, own, steps)
	}
	return err
}

func (s *Store) trySteps(ctx context.Context, sc *script, own mailbox.Ownership, steps []batchStep) error {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	made := s.key("steps", decimal(own.Shard), hex.EncodeToString(nonce[:]))
	calls := make([]call, len(steps))
	for i, step := range steps {
		keys := append([]string{s.shardKey(own.Shard), made}, step.keys...)
		args := append(ownerArgs(own, i+1, len(steps), flag(step.write)), step.args...)
		calls[i] = call{script: sc, keys: keys, args: args}
	}
	for _, r := range s.run(ctx, calls) {
		if r.err != nil {
			return r.err // the others follow from it
		}
	}
	return nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func cut[T any](list []T, n int) (first, rest []T, left int) {
	k := min(n, len(list))
	return list[:k], list[k:], n - k
}
