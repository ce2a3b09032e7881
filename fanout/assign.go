package fanout

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/laneway/laneway/fanout/claims"
)

// ErrAssignment: the outbox partitions are not divided among the instances
// without overlap and without gap.
var ErrAssignment = errors.New("outbox partition assignment")

// CheckAssignment validates a static assignment of outbox partitions to
// instances: each of the partitions 0..partitions-1 belongs to exactly one.
func CheckAssignment(partitions int, instances map[string][]int32) error {
	owner := make(map[int32]string, partitions)
	for _, name := range slices.Sorted(maps.Keys(instances)) {
		for _, p := range instances[name] {
			if p < 0 || int(p) >= partitions {
				return fmt.Errorf("%w: %s has partition %d, there are 0 to %d", ErrAssignment, name, p, partitions-1)
			}
			if other, taken := owner[p]; taken {
				return fmt.Errorf("%w: partition %d belongs to %s and to %s: each belongs to one instance", ErrAssignment, p, other, name)
			}
			owner[p] = name
		}
	}
	var gap []int32
	for p := range int32(partitions) {
		if _, ok := owner[p]; !ok {
			gap = append(gap, p)
		}
	}
	if len(gap) > 0 {
		return &GapError{gap}
	}
	return nil
}

// GapError says which partitions belong to no instance.
type GapError struct{ Partitions []int32 }

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("%s: partitions %s belong to no instance: their records would never be dispatched", ErrAssignment, claims.Ranges(e.Partitions))
}

// Is makes a GapError match ErrAssignment.
func (e *GapError) Is(target error) bool { return target == ErrAssignment }

// AllPartitions returns 0..partitions-1: the assignment of a single instance.
func AllPartitions(partitions int) []int32 {
	out := make([]int32, partitions)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// checkPartitions validates one instance's own set.
func checkPartitions(own []int32, partitions int) error {
	seen := make(map[int32]bool, len(own))
	for _, p := range own {
		if p < 0 || int(p) >= partitions {
			return fmt.Errorf("%w: partition %d, there are 0 to %d", ErrAssignment, p, partitions-1)
		}
		if seen[p] {
			return fmt.Errorf("%w: partition %d is named twice", ErrAssignment, p)
		}
		seen[p] = true
	}
	if len(own) == 0 {
		return fmt.Errorf("%w: no partitions", ErrAssignment)
	}
	return nil
}
