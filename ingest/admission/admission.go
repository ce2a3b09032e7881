// Package admission decides, in log order, what a record on a shard's partition
// of the dispatch topic is: an epoch marker, new work, the resumption of known
// work, a duplicate, stale, or bad.
//
// It is pure: what the store knows of the records' dispatches and
// conversations is given to it, and the same records always get the same
// decisions, on the first pass and on every replay. A caller that has not looked
// up the dispatches, because they are above what any owner has admitted, decides
// all the same and asks [Stands]. Design: docs/design/06-ingest.md, 6.1, 6.2 and
// 6.8.
package admission

import (
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// Kind is what a record turned out to be.
type Kind uint8

// The kinds of record, in the order in which they are told apart.
const (
	// EpochMarker carries no obligation; it may begin a shard epoch.
	EpochMarker Kind = iota
	// Quarantine: the record goes to the quarantine topic.
	Quarantine
	// Resume: the dispatch was begun at this very seq; unfinished chunks go on.
	Resume
	// Duplicate: the dispatch was begun at another seq, with the same content.
	Duplicate
	// Stale: an older writer's record; dropped whole and counted.
	Stale
	// New: a new dispatch.
	New
)

// String returns the kind's name, as in metrics.
func (k Kind) String() string {
	return [...]string{"epoch", "quarantine", "resume", "duplicate", "stale", "new"}[k]
}

// Record is one record of the partition, as read.
type Record struct {
	Offset    int64
	Timestamp int64 // the broker's, Unix ms
	IsEpoch   bool  // has the epoch header
	Value     []byte
}

// Decoded is a record after decoding, before any state is known.
type Decoded struct {
	Record
	Dispatch *records.Dispatch // nil for a marker or a bad record
	Epoch    records.Epoch     // of a marker
	Err      error             // condemns the record
}

// Decode reads the records of a batch.
func Decode(shard mailbox.Shard, batch []Record) []Decoded {
	out := make([]Decoded, len(batch))
	for i, r := range batch {
		out[i].Record = r
		if r.IsEpoch {
			out[i].Epoch, out[i].Err = records.DecodeEpoch(r.Value)
			continue
		}
		out[i].Dispatch, out[i].Err = records.DecodeDispatch(r.Value, shard, r.Timestamp)
	}
	return out
}

// Item is a decision.
type Item struct {
	Decoded
	Kind Kind
	Seq  mailbox.Seq
	// Known is the progress of the dispatch, for Resume and Duplicate of one
	// that an earlier batch began; nil when this batch did.
	Known *mailbox.DispatchProgress
	// FirstSeq is where a Duplicate was first seen.
	FirstSeq mailbox.Seq
	// Reason and Detail say why a record is quarantined.
	Reason records.Reason
	Detail string
}

// Fences decides staleness; fencing.Memory is one. known is false when the row
// was not loaded.
type Fences interface {
	Decide(c mailbox.Conversation, epoch uint64, offset int64) (drop, known bool)
}

// State is what a batch is decided against. Boundaries and Fences change with
// each record.
type State struct {
	Shard      mailbox.Shard
	Boundaries *mailbox.Boundaries
	Fences     Fences
	// Known holds the progress of those of the batch's dispatches that have one.
	Known map[mailbox.DispatchID]*mailbox.DispatchProgress
}

// Stands reports whether decisions that were made without State.Known are those
// that would have been made with it, provided that the store then begins the new
// dispatches and does not answer mailbox.ErrDispatchKnown. A dispatch that the
// batch itself repeats is no matter: the store is asked for its first sight. A
// stale record is not begun, so nothing asks the store whether it is a duplicate.
// And what goes to quarantine goes there once, in log order, by decisions that
// stay.
func Stands(items []Item) bool {
	for i := range items {
		if k := items[i].Kind; k == Stale || k == Quarantine {
			return false
		}
	}
	return true
}

type sight struct {
	seq    mailbox.Seq
	digest mailbox.Digest
}

// Decide decides a batch in log order.
func Decide(st State, batch []Decoded) ([]Item, error) {
	items := make([]Item, len(batch))
	var inBatch map[mailbox.DispatchID]sight
	for i := range batch {
		it := &items[i]
		it.Decoded = batch[i]
		if it.IsEpoch && it.Err == nil {
			st.Boundaries.Add(it.Epoch.Epoch, it.Offset)
		}
		var err error
		if it.Seq, err = st.Boundaries.SeqAt(it.Offset); err != nil {
			return nil, err
		}
		switch {
		case it.Err != nil:
			it.Condemn(it.Err)
		case it.IsEpoch:
			it.Kind = EpochMarker
		default:
			if err := st.decide(it, inBatch); err != nil {
				return nil, err
			}
			if it.Kind == New {
				if inBatch == nil {
					inBatch = make(map[mailbox.DispatchID]sight, len(batch)-i)
				}
				inBatch[it.Dispatch.DispatchID] = sight{it.Seq, it.Dispatch.PayloadDigest}
			}
		}
	}
	return items, nil
}

func (st State) decide(it *Item, inBatch map[mailbox.DispatchID]sight) error {
	d := it.Dispatch
	// Every decodable record updates the filter, duplicates too.
	stale, known := st.Fences.Decide(d.ConversationKey(), d.FencingEpoch, it.Offset)
	if !known {
		return fmt.Errorf("fence row of a conversation was not loaded (offset %d)", it.Offset)
	}
	first, seen := inBatch[d.DispatchID]
	if p := st.Known[d.DispatchID]; p != nil {
		first, seen = sight{p.Seq, p.PayloadDigest}, true
		it.Known = p
	}
	switch {
	case seen && first.digest != d.PayloadDigest:
		it.Condemn(records.NewError(records.DigestConflict, nil, "dispatch %s was first seen at %s", d.DispatchID, first.seq))
	case seen && first.seq == it.Seq:
		it.Kind = Resume
	case seen:
		it.Kind = Duplicate
		it.FirstSeq = first.seq
	case stale:
		it.Kind = Stale
	default:
		it.Kind = New
	}
	return nil
}

// Condemn makes the record one for quarantine, for the reason that err has.
func (it *Item) Condemn(err error) {
	it.Kind = Quarantine
	it.Detail = err.Error()
	it.Reason = records.Undecodable
	if r, ok := records.ReasonOf(err); ok {
		it.Reason = r
	}
}
