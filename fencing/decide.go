package fencing

import (
	"slices"

	"github.com/laneway/laneway/mailbox"
)

// Decide says whether a record of the row's conversation with the given fencing
// epoch, at the given log offset, is stale. Only epochs first seen at or before
// offset count, and Base counts everywhere. A record that is not stale updates
// the row; changed reports whether it did.
//
// Offsets may come in any order at or above the offset that the row was last
// trimmed to.
func Decide(row *mailbox.FenceRow, epoch uint64, offset int64) (drop, changed bool) {
	// at is the number of epochs first seen at or before offset.
	at := len(row.Seen)
	for at > 0 && row.Seen[at-1].Offset > offset {
		at--
	}
	largest := row.Base
	if at > 0 {
		largest = max(largest, row.Seen[at-1].Epoch)
	}
	if epoch <= largest {
		return epoch < largest, false
	}
	// Later sights of this or a smaller epoch are no longer the first.
	end := at
	for end < len(row.Seen) && row.Seen[end].Epoch <= epoch {
		end++
	}
	row.Seen = slices.Replace(row.Seen, at, end, mailbox.FenceSeen{Epoch: epoch, Offset: offset})
	return false, true
}

// Trim folds every epoch first seen below an offset into Base. No record below
// that offset may be decided afterwards. It reports whether the row changed.
func Trim(row *mailbox.FenceRow, below int64) bool {
	n := 0
	for n < len(row.Seen) && row.Seen[n].Offset < below {
		row.Base = max(row.Base, row.Seen[n].Epoch)
		n++
	}
	row.Seen = slices.Delete(row.Seen, 0, n)
	return n > 0
}
