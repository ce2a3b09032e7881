package membership

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// SlotChange is one user of a change: a join gets a slot of its own, a leave
// gives its slot up for good.
type SlotChange struct {
	Slot  uint32
	User  string
	Seq   uint64 // conversation_seq of the join or leave
	Leave bool
}

// ChangesToProto converts for a record.
func ChangesToProto(cs []SlotChange) []*logv1.SlotChange {
	rows := make([]logv1.SlotChange, len(cs))
	out := make([]*logv1.SlotChange, len(cs))
	for i, c := range cs {
		out[i] = &rows[i]
		out[i].Slot, out[i].UserId = c.Slot, c.User
		if c.Leave {
			out[i].LeaveSeq = c.Seq
		} else {
			out[i].JoinSeq = c.Seq
		}
	}
	return out
}

// ChangesFromProto converts a record's changes.
func ChangesFromProto(ps []*logv1.SlotChange) []SlotChange {
	cs := make([]SlotChange, len(ps))
	for i, p := range ps {
		cs[i] = SlotChange{Slot: p.GetSlot(), User: p.GetUserId(), Seq: p.GetJoinSeq()}
		if p.GetLeaveSeq() != 0 {
			cs[i].Seq, cs[i].Leave = p.GetLeaveSeq(), true
		}
	}
	return cs
}

// Field numbers of SlotChanges and SlotChange.
const (
	fieldChanges = 1

	fieldSlot     = 1
	fieldUser     = 2
	fieldJoinSeq  = 3
	fieldLeaveSeq = 4
)

// EncodeChanges returns the content of a change's blob: a laneway.log.v1.SlotChanges,
// written with protowire, since a million messages in memory would take four times
// the blob.
func EncodeChanges(cs []SlotChange) []byte {
	size := 0
	for i := range cs {
		n := cs[i].size()
		size += protowire.SizeTag(fieldChanges) + protowire.SizeBytes(n)
	}
	b := make([]byte, 0, size)
	for i := range cs {
		c := &cs[i]
		b = protowire.AppendTag(b, fieldChanges, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(c.size()))
		b = appendUint(b, fieldSlot, uint64(c.Slot))
		b = appendText(b, fieldUser, c.User)
		b = appendUint(b, c.seqField(), c.Seq)
	}
	return b
}

func (c *SlotChange) seqField() protowire.Number {
	if c.Leave {
		return fieldLeaveSeq
	}
	return fieldJoinSeq
}

func (c *SlotChange) size() int {
	n := 0
	if c.Slot != 0 {
		n += protowire.SizeTag(fieldSlot) + protowire.SizeVarint(uint64(c.Slot))
	}
	if c.User != "" {
		n += protowire.SizeTag(fieldUser) + protowire.SizeBytes(len(c.User))
	}
	if c.Seq != 0 {
		n += protowire.SizeTag(c.seqField()) + protowire.SizeVarint(c.Seq)
	}
	return n
}

// minChangeBytes is the least that a change with a user and a seq takes: what
// holds more changes than that is none.
const minChangeBytes = 7

// DecodeChanges reads a change's blob. It takes memory for what is there, not for
// what is claimed; what is not a list of changes is an error.
func DecodeChanges(b []byte) ([]SlotChange, error) {
	n := 0
	if !fields(b, func(num protowire.Number, _ uint64, text []byte) bool {
		n++
		return num == fieldChanges && len(text) >= minChangeBytes-2
	}) {
		return nil, fmt.Errorf("not a list of slot changes")
	}
	cs := make([]SlotChange, 0, n)
	ok := fields(b, func(_ protowire.Number, _ uint64, text []byte) bool {
		c, ok := decodeChange(text)
		cs = append(cs, c)
		return ok
	})
	if !ok {
		return nil, fmt.Errorf("slot change %d of %d is none", len(cs), n)
	}
	return cs, nil
}

func decodeChange(b []byte) (c SlotChange, ok bool) {
	ok = fields(b, func(num protowire.Number, x uint64, text []byte) bool {
		switch num {
		case fieldSlot:
			c.Slot = uint32(x)
			return x <= math.MaxUint32
		case fieldUser:
			c.User = string(text)
			return len(text) <= mailbox.MaxIDBytes
		case fieldJoinSeq, fieldLeaveSeq:
			twice := c.Seq != 0
			c.Seq, c.Leave = x, num == fieldLeaveSeq
			return !twice && x != 0
		}
		return false
	})
	return c, ok && c.User != "" && c.Seq != 0
}
