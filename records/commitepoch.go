package records

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// CommitEpoch is a CommitEpochRecord: behind it, outbox records of a smaller
// commit epoch do not count (design 8.4).
type CommitEpoch uint64

// Encode returns the record's bytes.
func (e CommitEpoch) Encode() []byte {
	return appendUint(appendUint(nil, 1, SchemaVersion), 2, uint64(e))
}

// DecodeCommitEpoch reads a CommitEpochRecord. What it refuses makes no boundary,
// for everybody who reads it.
func DecodeCommitEpoch(b []byte) (CommitEpoch, error) {
	if err := checkSize(len(b), maxEpochBytes); err != nil {
		return 0, err
	}
	var p logv1.CommitEpochRecord
	if err := proto.Unmarshal(b, &p); err != nil {
		return 0, NewError(Undecodable, err, "not a commit epoch record")
	}
	if err := checkVersion(uint64(p.GetSchemaVersion())); err != nil {
		return 0, err
	}
	if p.GetCommitEpoch() == 0 {
		return 0, NewError(Invalid, nil, "commit epochs start at 1")
	}
	return CommitEpoch(p.GetCommitEpoch()), nil
}

// maxMarks bounds what a CommitEpochs remembers. A replay begins at most a few
// seconds back, and a marker comes with a restart of the store.
const maxMarks = 64

// CommitEpochs says for one outbox partition which records count. What it says
// of a record depends on its offset and the markers below it alone, so that
// every reader decides alike, and a replay as the first pass did. The zero value
// has seen no marker. It is not safe for concurrent use.
type CommitEpochs struct{ marks []mailbox.FenceSeen }

// NewCommitEpochs goes on from what Marks returned.
func NewCommitEpochs(marks []mailbox.FenceSeen) CommitEpochs {
	return CommitEpochs{append([]mailbox.FenceSeen(nil), marks...)}
}

// Marks returns the markers that made a boundary, ascending in epoch and offset.
func (c *CommitEpochs) Marks() []mailbox.FenceSeen {
	return append([]mailbox.FenceSeen(nil), c.marks...)
}

// Mark notes the marker at an offset and reports whether that is news. A marker
// of an epoch that is not larger than one below it makes no boundary.
func (c *CommitEpochs) Mark(e CommitEpoch, offset int64) bool {
	if last := len(c.marks); last > 0 && (c.marks[last-1].Offset >= offset || c.marks[last-1].Epoch >= uint64(e)) {
		return false // markers are met in log order, or again
	}
	c.marks = append(c.marks, mailbox.FenceSeen{Epoch: uint64(e), Offset: offset})
	if n := len(c.marks) - maxMarks; n > 0 {
		c.marks = append(c.marks[:0], c.marks[n:]...)
	}
	return true
}

// At returns the epoch that counts at an offset, 0 when no marker lies below it.
func (c *CommitEpochs) At(offset int64) uint64 {
	for i := len(c.marks) - 1; i >= 0; i-- {
		if c.marks[i].Offset < offset {
			return c.marks[i].Epoch
		}
	}
	return 0
}

// Stale reports whether a record of a commit epoch at an offset does not count:
// its writer's store has lost the commit, and the writer never answered success.
// Epoch 0 is that of writers who do not rely on a store which may lose its tail.
func (c *CommitEpochs) Stale(commitEpoch uint64, offset int64) bool {
	return commitEpoch > 0 && commitEpoch < c.At(offset)
}

// fieldCommitEpoch is OutboxRecord.commit_epoch.
const fieldCommitEpoch = 16

// SplitCommitEpoch returns the commit epoch of an outbox record's bytes, also of
// a record that is refused for something else, and the bytes without it. A record
// in quarantine is kept so: it has been judged by its epoch where it lay, and
// must not be judged again where a retry puts it. What is no protobuf message has
// the epoch 0 and stays as it is.
func SplitCommitEpoch(b []byte) (epoch uint64, rest []byte) {
	for left := b; len(left) > 0; {
		num, typ, n := protowire.ConsumeField(left)
		if n < 0 {
			return 0, b
		}
		field := left[:n]
		left = left[n:]
		if num != fieldCommitEpoch || typ != protowire.VarintType {
			rest = append(rest, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		epoch, _ = protowire.ConsumeVarint(field[tag:])
	}
	if epoch == 0 {
		return 0, b
	}
	return epoch, rest
}
