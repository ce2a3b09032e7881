package activities

import (
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// DispatchRef names one dispatch in one shard. It and the types below are stored in
// histories: fields are only ever added.
type DispatchRef struct {
	Shard    mailbox.Shard `json:"shard"`
	Dispatch string        `json:"dispatch"` // hex
	Seq      string        `json:"seq"`      // epoch:offset
}

// NewDispatchRef returns the reference to a dispatch.
func NewDispatchRef(shard mailbox.Shard, d mailbox.DispatchID, seq mailbox.Seq) DispatchRef {
	return DispatchRef{Shard: shard, Dispatch: d.String(), Seq: seq.String()}
}

// Parse returns the ids that the reference holds.
func (d DispatchRef) Parse() (mailbox.DispatchID, mailbox.Seq, error) {
	id, err := mailbox.ParseDispatchID(d.Dispatch)
	if err != nil {
		return id, 0, fmt.Errorf("%w: %w", errBadReference, err)
	}
	seq, err := mailbox.ParseSeq(d.Seq)
	if err != nil {
		return id, 0, fmt.Errorf("%w: %w", errBadReference, err)
	}
	return id, seq, nil
}

// Chunk is the input of AppendChunk and RetryChunk.
type Chunk struct {
	DispatchRef
	Lane  mailbox.Lane `json:"lane"`
	Chunk int          `json:"chunk"` // within the lane, from 0
}

func (c Chunk) ref() (mailbox.ChunkRef, error) {
	id, seq, err := c.Parse()
	if err != nil {
		return mailbox.ChunkRef{}, err
	}
	if c.Lane >= mailbox.LaneCount || c.Chunk < 0 {
		return mailbox.ChunkRef{}, fmt.Errorf("%w: lane %d chunk %d", errBadReference, c.Lane, c.Chunk)
	}
	return mailbox.ChunkRef{Shard: c.Shard, Dispatch: id, Seq: seq, Lane: c.Lane, Index: c.Chunk}, nil
}

// Lanes is the input of AppendLanes.
type Lanes struct {
	DispatchRef
	// Lanes are plain ints: JSON would write a slice of bytes as base64.
	Lanes []int `json:"lanes"`
}

func (l Lanes) lanes() ([]mailbox.Lane, error) {
	out := make([]mailbox.Lane, len(l.Lanes))
	for i, n := range l.Lanes {
		if n < 0 || n >= mailbox.LaneCount {
			return nil, fmt.Errorf("%w: lane %d", errBadReference, n)
		}
		out[i] = mailbox.Lane(n)
	}
	return out, nil
}

// Unfinished is the result of AppendLanes: the lanes that are not durable, each
// with its error.
type Unfinished struct {
	Lanes []LaneOutcome `json:"lanes,omitempty"`
}
