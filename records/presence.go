package records

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

// MaxPresenceBytes bounds a presence record's value: three ids of the largest
// size, with room for fields of later versions.
const MaxPresenceBytes = 1 << 10

// Presence is a PresenceRecord: what a gateway knew of one device at a time
// (design 4).
type Presence struct {
	Tenant, User, Device string
	Online               bool
	At                   int64 // Unix ms
}

// Key returns the record's key, by which compaction keeps the last record of
// each device.
func (p Presence) Key() []byte {
	k := make([]byte, 0, len(p.Tenant)+len(p.User)+len(p.Device)+2)
	k = append(append(k, p.Tenant...), 0) // no id holds a zero byte
	k = append(append(k, p.User...), 0)
	return append(k, p.Device...)
}

func (p Presence) check() error {
	if err := checkID("tenant_id", p.Tenant); err != nil {
		return err
	}
	if err := checkID("user_id", p.User); err != nil {
		return err
	}
	if err := checkID("device_id", p.Device); err != nil {
		return err
	}
	if p.At <= 0 || p.At > maxCommittedAt {
		return NewError(Invalid, nil, "at_ms %d is outside the years 1970 to 9999", p.At)
	}
	return nil
}

// Encode validates the event and returns the record's value.
func (p Presence) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	state := logv1.PresenceState_PRESENCE_STATE_OFFLINE
	if p.Online {
		state = logv1.PresenceState_PRESENCE_STATE_ONLINE
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&logv1.PresenceRecord{
		SchemaVersion: SchemaVersion, TenantId: p.Tenant, UserId: p.User, DeviceId: p.Device, State: state, AtMs: p.At,
	})
	if err != nil {
		return nil, NewError(Invalid, err, "%s", err)
	}
	return b, nil
}

// DecodePresence reads a record of the presence topic that the broker dated
// brokerAt (Unix ms). A record without a value says that the device of its key is
// offline. A gateway's clock that runs ahead counts as the broker's.
func DecodePresence(key, value []byte, brokerAt int64) (Presence, error) {
	if value == nil {
		return decodeTombstone(key, brokerAt)
	}
	if err := checkSize(len(value), MaxPresenceBytes); err != nil {
		return Presence{}, err
	}
	var r logv1.PresenceRecord
	if err := proto.Unmarshal(value, &r); err != nil {
		return Presence{}, NewError(Undecodable, err, "not a presence record")
	}
	if err := checkVersion(uint64(r.GetSchemaVersion())); err != nil {
		return Presence{}, err
	}
	p := Presence{Tenant: r.GetTenantId(), User: r.GetUserId(), Device: r.GetDeviceId(), At: r.GetAtMs()}
	switch r.GetState() {
	case logv1.PresenceState_PRESENCE_STATE_ONLINE:
		p.Online = true
	case logv1.PresenceState_PRESENCE_STATE_OFFLINE:
	default:
		return Presence{}, NewError(Invalid, nil, "state %d is neither online nor offline", r.GetState())
	}
	if err := p.check(); err != nil {
		return Presence{}, err
	}
	// Another key than the content's: compaction would keep or drop the wrong one.
	if !bytes.Equal(key, p.Key()) {
		return Presence{}, NewError(Invalid, nil, "the record's key does not name its device")
	}
	p.At = min(p.At, brokerAt)
	return p, p.check()
}

func decodeTombstone(key []byte, brokerAt int64) (Presence, error) {
	if err := checkSize(len(key), MaxPresenceBytes); err != nil {
		return Presence{}, err
	}
	ids := bytes.Split(key, []byte{0})
	if len(ids) != 3 {
		return Presence{}, NewError(Undecodable, nil, "a key of %d ids, want tenant, user and device", len(ids))
	}
	p := Presence{Tenant: string(ids[0]), User: string(ids[1]), Device: string(ids[2]), At: brokerAt}
	return p, p.check()
}
