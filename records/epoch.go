package records

import (
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// EpochHeader is the key of the record header that marks an EpochRecord on the
// dispatch topic.
const EpochHeader = "laneway-epoch"

// maxEpochBytes is far above any EpochRecord.
const maxEpochBytes = 1 << 10

// Epoch is an EpochRecord: the log says from here on which ownership of the
// shard its offsets belong to (design 2.1).
type Epoch struct {
	Epoch mailbox.Epoch
	Token mailbox.Token
}

// Encode returns the record's bytes.
func (e Epoch) Encode() []byte {
	b := appendUint(nil, 1, SchemaVersion)
	b = appendUint(b, 2, uint64(e.Epoch))
	return appendBytes(b, 3, e.Token[:])
}

// DecodeEpoch reads an EpochRecord.
func DecodeEpoch(b []byte) (Epoch, error) {
	if err := checkSize(len(b), maxEpochBytes); err != nil {
		return Epoch{}, err
	}
	var p logv1.EpochRecord
	if err := proto.Unmarshal(b, &p); err != nil {
		return Epoch{}, NewError(Undecodable, err, "not an epoch record")
	}
	if err := checkVersion(uint64(p.GetSchemaVersion())); err != nil {
		return Epoch{}, err
	}
	e := Epoch{Epoch: mailbox.Epoch(p.GetEpoch())}
	if p.GetEpoch() < 1 || p.GetEpoch() > mailbox.MaxEpoch {
		return Epoch{}, NewError(Invalid, nil, "epoch %d is outside 1..%d", p.GetEpoch(), mailbox.MaxEpoch)
	}
	if len(p.GetToken()) != len(e.Token) {
		return Epoch{}, NewError(Invalid, nil, "the token has %d bytes, want %d", len(p.GetToken()), len(e.Token))
	}
	copy(e.Token[:], p.GetToken())
	return e, nil
}
