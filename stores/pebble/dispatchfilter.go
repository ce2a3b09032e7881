package pebble

import (
	"context"
	"encoding/binary"

	"github.com/laneway/laneway/mailbox"
)

// dispatchFilter answers from memory that a dispatch was never begun in a
// shard, which is so for nearly every record of the log: reading that from the
// database costs a search of every memtable. It is a Bloom filter in layers,
// each twice as large as the one before; a dispatch_id is a hash already, so its
// halves are the two hash functions. It says nothing until it has taken in what
// the database holds, nor beyond its last layer.
type dispatchFilter struct {
	layers []filterLayer
	loaded bool
	full   bool
}

type filterLayer struct {
	bits []uint64
	room int // ids that may still be added
}

const (
	filterFirstBits = 1 << 23 // 1 MiB: 800,000 dispatches
	filterBitsPerID = 10
	filterProbes    = 7
	filterLayers    = 6 // 63 MiB in all: 50 million dispatches
)

func (f *dispatchFilter) add(id mailbox.DispatchID) {
	if f.full {
		return
	}
	n := len(f.layers)
	if n == 0 || f.layers[n-1].room == 0 {
		if n == filterLayers {
			f.full, f.layers = true, nil
			return
		}
		bits := filterFirstBits << n
		f.layers = append(f.layers, filterLayer{make([]uint64, bits/64), bits / filterBitsPerID})
		n++
	}
	l := &f.layers[n-1]
	l.room--
	h, step := filterHash(id)
	mask := uint64(len(l.bits)*64 - 1)
	for range filterProbes {
		l.bits[h&mask/64] |= 1 << (h & 63)
		h += step
	}
}

// never reports whether the dispatch was certainly never begun.
func (f *dispatchFilter) never(id mailbox.DispatchID) bool {
	if !f.loaded || f.full {
		return false
	}
	h, step := filterHash(id)
	for i := range f.layers {
		if f.layers[i].has(h, step) {
			return false
		}
	}
	return true
}

func (l *filterLayer) has(h, step uint64) bool {
	mask := uint64(len(l.bits)*64 - 1)
	for range filterProbes {
		if l.bits[h&mask/64]&(1<<(h&63)) == 0 {
			return false
		}
		h += step
	}
	return true
}

func filterHash(id mailbox.DispatchID) (h, step uint64) {
	return binary.LittleEndian.Uint64(id[:8]), binary.LittleEndian.Uint64(id[8:]) | 1
}

// loadFilter takes in the dispatches that a shard's index holds. Begin adds to
// the filter meanwhile.
func (s *Store) loadFilter(ctx context.Context, sh *shard) error {
	const batch = 4096
	ids := make([]mailbox.DispatchID, 0, batch)
	flush := func() bool {
		sh.begin.Lock()
		defer sh.begin.Unlock()
		for _, id := range ids {
			sh.filter.add(id)
		}
		ids = ids[:0]
		return !sh.filter.full && ctx.Err() == nil
	}
	lower := shardKey(tableDispatch, sh.n)
	err := s.scanRange(lower, prefixEnd(lower), func(key, _ []byte) (bool, error) {
		var id mailbox.DispatchID
		copy(id[:], key[len(lower):])
		ids = append(ids, id)
		return len(ids) < batch || flush(), nil
	})
	flush()
	if err != nil || ctx.Err() != nil {
		return err
	}
	sh.begin.Lock()
	defer sh.begin.Unlock()
	sh.filter.loaded = true
	return nil
}
