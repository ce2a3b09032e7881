package mailbox

import "sort"

// Boundary is the first log offset that belongs to a shard epoch (design 2.1).
type Boundary struct {
	Epoch  Epoch
	Offset int64
}

// Boundaries answers which epoch an offset belongs to: the largest epoch of any
// boundary at or before it, and epoch 1 before the first. It is a pure value;
// the log's EpochRecords are what fills it.
type Boundaries struct {
	list []Boundary // ascending in both fields
}

// Add records an EpochRecord found at offset. A late record of a smaller or
// equal epoch changes nothing and reports false.
func (b *Boundaries) Add(epoch Epoch, offset int64) bool {
	i := sort.Search(len(b.list), func(i int) bool { return b.list[i].Offset >= offset })
	if i > 0 && b.list[i-1].Epoch >= epoch {
		return false
	}
	if i < len(b.list) && b.list[i].Offset == offset && b.list[i].Epoch == epoch {
		return false
	}
	// Records after this one that carry a smaller or equal epoch make no boundary.
	j := i
	for j < len(b.list) && b.list[j].Epoch <= epoch {
		j++
	}
	b.list = append(b.list[:i:i], append([]Boundary{{epoch, offset}}, b.list[j:]...)...)
	return true
}

// EpochAt returns the epoch that offset belongs to.
func (b *Boundaries) EpochAt(offset int64) Epoch {
	i := sort.Search(len(b.list), func(i int) bool { return b.list[i].Offset > offset })
	if i == 0 {
		return 1
	}
	return b.list[i-1].Epoch
}

// SeqAt returns the position of offset.
func (b *Boundaries) SeqAt(offset int64) (Seq, error) { return NewSeq(b.EpochAt(offset), offset) }

// Last returns the largest boundary, or false when there is none.
func (b *Boundaries) Last() (Boundary, bool) {
	if len(b.list) == 0 {
		return Boundary{}, false
	}
	return b.list[len(b.list)-1], true
}

// List returns a copy of the boundaries in ascending order.
func (b *Boundaries) List() []Boundary { return append([]Boundary(nil), b.list...) }
