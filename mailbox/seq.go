package mailbox

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	offsetBits = 48

	// MaxOffset is the largest log offset a Seq can carry.
	MaxOffset = 1<<offsetBits - 1
	// MaxEpoch is the last shard epoch. A shard that reached it cannot be taken
	// over again.
	MaxEpoch = 1<<16 - 1
)

// Epoch is a shard epoch: 1 for the first ownership of a shard, one more for
// each later one.
type Epoch uint16

// Seq is a position in a shard's log: the shard epoch in the upper 16 bits and
// the log offset in the lower 48 (design 2.1). Seq 0 is before everything.
type Seq uint64

// NewSeq returns the position of offset in epoch. It refuses what does not fit
// instead of wrapping.
func NewSeq(epoch Epoch, offset int64) (Seq, error) {
	if epoch == 0 {
		return 0, fmt.Errorf("%w: epoch 0 (epochs start at 1)", ErrSeqRange)
	}
	if offset < 0 || offset > MaxOffset {
		return 0, fmt.Errorf("%w: log offset %d is outside 0..%d", ErrSeqRange, offset, int64(MaxOffset))
	}
	return Seq(uint64(epoch)<<offsetBits | uint64(offset)), nil
}

// NextEpoch returns the epoch after e, or an error at the last one.
func NextEpoch(e Epoch) (Epoch, error) {
	if e == MaxEpoch {
		return 0, fmt.Errorf("%w: shard epoch %d is the last; move the shard's users to a new deployment", ErrSeqRange, MaxEpoch)
	}
	return e + 1, nil
}

// Epoch returns the shard epoch of s; 0 for Seq 0.
func (s Seq) Epoch() Epoch { return Epoch(s >> offsetBits) }

// Offset returns the log offset of s. Seq 0 has none: callers that start
// reading at a watermark use [Seq.NextOffset].
func (s Seq) Offset() int64 { return int64(s & MaxOffset) }

// NextOffset returns the first log offset after s, given the log's first offset
// for Seq 0.
func (s Seq) NextOffset(logStart int64) int64 {
	if s == 0 {
		return logStart
	}
	return s.Offset() + 1
}

// Before returns the position just below s within its epoch, or Seq 0 below
// offset 0. It never crosses an epoch boundary, because a boundary is itself an
// offset that carries no dispatch.
func (s Seq) Before() Seq {
	if s == 0 || s.Offset() == 0 {
		return 0
	}
	return s - 1
}

// String returns epoch:offset.
func (s Seq) String() string {
	return strconv.FormatUint(uint64(s.Epoch()), 10) + ":" + strconv.FormatInt(s.Offset(), 10)
}

// ParseSeq reads what [Seq.String] wrote.
func ParseSeq(text string) (Seq, error) {
	e, o, ok := strings.Cut(text, ":")
	if !ok {
		return 0, fmt.Errorf("seq %q: want epoch:offset", text)
	}
	epoch, err := strconv.ParseUint(e, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("seq %q: epoch: %w", text, err)
	}
	offset, err := strconv.ParseInt(o, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("seq %q: offset: %w", text, err)
	}
	if epoch == 0 && offset == 0 {
		return 0, nil
	}
	return NewSeq(Epoch(epoch), offset)
}
