package pebble

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
)

// merger folds the rows that several writers raise. Every fold is commutative,
// associative and idempotent, so that neither the order of writers nor a
// repetition matters.
var merger = &pebble.Merger{
	Name: "laneway.fold.v1",
	Merge: func(key, value []byte) (pebble.ValueMerger, error) {
		f, err := foldOf(key)
		if err != nil {
			return nil, err
		}
		m := &valueMerger{fold: f}
		return m, m.MergeNewer(value)
	},
}

// fold combines two operands; dst may be changed and returned.
type fold func(dst, operand []byte) ([]byte, error)

func foldOf(key []byte) (fold, error) {
	if len(key) > 0 {
		switch key[0] {
		case tableBounds, tableFrontier:
			return foldMax, nil
		case tableDayMax, tableExpiredMax:
			return foldLanes, nil
		case tableLatestSlot:
			return foldLast, nil
		case tableProgress:
			if key[len(key)-1] == progressPartSeen {
				return foldMax, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: a merge on key %x", mailbox.ErrCorrupt, key)
}

type valueMerger struct {
	fold  fold
	value []byte
	set   bool
}

func (m *valueMerger) MergeNewer(operand []byte) error {
	if !m.set {
		m.value, m.set = append(m.value, operand...), true
		return nil
	}
	var err error
	m.value, err = m.fold(m.value, operand)
	return err
}

func (m *valueMerger) MergeOlder(operand []byte) error { return m.MergeNewer(operand) }

func (m *valueMerger) Finish(bool) ([]byte, io.Closer, error) { return m.value, nil, nil }

// foldMax takes the larger of each pair of big-endian uint64s.
func foldMax(dst, operand []byte) ([]byte, error) {
	if len(dst) != len(operand) || len(dst)%8 != 0 {
		return nil, fmt.Errorf("%w: maxima of %d and %d bytes", mailbox.ErrCorrupt, len(dst), len(operand))
	}
	for i := 0; i < len(dst); i += 8 {
		if binary.BigEndian.Uint64(operand[i:]) > binary.BigEndian.Uint64(dst[i:]) {
			copy(dst[i:i+8], operand[i:])
		}
	}
	return dst, nil
}

// foldLast takes the operand that sorts last: the row of the larger slot.
func foldLast(dst, operand []byte) ([]byte, error) {
	if string(operand) > string(dst) {
		return append(dst[:0], operand...), nil
	}
	return dst, nil
}

// foldLanes takes the larger seq of each lane.
func foldLanes(dst, operand []byte) ([]byte, error) {
	var a laneMax
	if err := a.decode(dst); err != nil {
		return nil, err
	}
	if err := a.decode(operand); err != nil {
		return nil, err
	}
	return a.append(dst[:0]), nil
}

// laneMax holds one seq per lane, 0 for none.
type laneMax [mailbox.LaneCount]mailbox.Seq

const laneMaxItem = 1 + 8

// append encodes the lanes that have a seq.
func (m *laneMax) append(b []byte) []byte {
	for lane, seq := range m {
		if seq != 0 {
			b = binary.BigEndian.AppendUint64(append(b, byte(lane)), uint64(seq))
		}
	}
	return b
}

// decode raises m to what b holds.
func (m *laneMax) decode(b []byte) error {
	if len(b)%laneMaxItem != 0 {
		return fmt.Errorf("%w: lane maxima of %d bytes", mailbox.ErrCorrupt, len(b))
	}
	for ; len(b) > 0; b = b[laneMaxItem:] {
		if b[0] >= mailbox.LaneCount {
			return fmt.Errorf("%w: maximum of lane %d", mailbox.ErrCorrupt, b[0])
		}
		m.raise(mailbox.Lane(b[0]), mailbox.Seq(binary.BigEndian.Uint64(b[1:])))
	}
	return nil
}

func (m *laneMax) raise(lane mailbox.Lane, seq mailbox.Seq) { m[lane] = max(m[lane], seq) }

func (m *laneMax) raiseAll(o *laneMax) {
	for lane, seq := range o {
		m[lane] = max(m[lane], seq)
	}
}
