package records

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

func TestPresenceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Presence{
			Tenant: genID.Draw(t, "tenant"), User: genID.Draw(t, "user"), Device: genID.Draw(t, "device"),
			Online: rapid.Bool().Draw(t, "online"), At: rapid.Int64Range(1, maxCommittedAt).Draw(t, "at"),
		}
		b, err := p.Encode()
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), MaxPresenceBytes)
		got, err := DecodePresence(p.Key(), b, p.At)
		require.NoError(t, err)
		require.Equal(t, p, got)
		broker := rapid.Int64Range(1, p.At).Draw(t, "broker")
		got, err = DecodePresence(p.Key(), b, broker)
		require.NoError(t, err)
		require.Equal(t, broker, got.At, "a clock that runs ahead counts as the broker's")

		got, err = DecodePresence(p.Key(), nil, broker)
		require.NoError(t, err)
		require.Equal(t, Presence{Tenant: p.Tenant, User: p.User, Device: p.Device, At: broker}, got, "no value: offline")
	})
}

func TestPresenceRefusals(t *testing.T) {
	good := func() *logv1.PresenceRecord {
		return &logv1.PresenceRecord{
			SchemaVersion: 1, TenantId: "acme", UserId: "ann", DeviceId: "phone", State: logv1.PresenceState_PRESENCE_STATE_ONLINE, AtMs: 5,
		}
	}
	key := Presence{Tenant: "acme", User: "ann", Device: "phone"}.Key()
	long := string(bytes.Repeat([]byte("x"), 129))
	for name, c := range map[string]struct {
		change func(*logv1.PresenceRecord)
		want   error
	}{
		"version":    {func(r *logv1.PresenceRecord) { r.SchemaVersion = 2 }, ErrUnknownVersion},
		"no tenant":  {func(r *logv1.PresenceRecord) { r.TenantId = "" }, ErrInvalid},
		"long user":  {func(r *logv1.PresenceRecord) { r.UserId = long }, ErrInvalid},
		"no device":  {func(r *logv1.PresenceRecord) { r.DeviceId = "" }, ErrInvalid},
		"zero byte":  {func(r *logv1.PresenceRecord) { r.UserId = "a\x00b" }, ErrInvalid},
		"no state":   {func(r *logv1.PresenceRecord) { r.State = 0 }, ErrInvalid},
		"odd state":  {func(r *logv1.PresenceRecord) { r.State = 9 }, ErrInvalid},
		"no time":    {func(r *logv1.PresenceRecord) { r.AtMs = 0 }, ErrInvalid},
		"other user": {func(r *logv1.PresenceRecord) { r.UserId = "bob" }, ErrInvalid}, // than the key's
	} {
		r := good()
		c.change(r)
		b, err := proto.Marshal(r)
		require.NoError(t, err)
		_, err = DecodePresence(key, b, 10)
		require.ErrorIs(t, err, c.want, name)
	}
	b, err := proto.Marshal(good())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		key, value []byte
		want       error
	}{
		"junk":            {key, []byte{0xff, 0xff}, ErrUndecodable},
		"empty":           {key, []byte{}, ErrUnknownVersion},
		"too large":       {key, make([]byte, MaxPresenceBytes+1), ErrTooLarge},
		"no key":          {nil, b, ErrInvalid},
		"tombstone":       {[]byte("acme\x00ann"), nil, ErrUndecodable},
		"large tombstone": {make([]byte, MaxPresenceBytes+1), nil, ErrTooLarge},
		"empty ids":       {[]byte("\x00\x00"), nil, ErrInvalid},
	} {
		_, err := DecodePresence(c.key, c.value, 10)
		require.ErrorIs(t, err, c.want, name)
	}
	_, err = Presence{Tenant: "acme", User: "ann", Device: "phone"}.Encode()
	require.ErrorIs(t, err, ErrInvalid, "no time")
}

func FuzzDecodePresence(f *testing.F) {
	p := Presence{Tenant: "acme", User: "ann", Device: "phone", Online: true, At: 5}
	b, err := p.Encode()
	require.NoError(f, err)
	f.Add(p.Key(), b, false)
	f.Add(p.Key(), []byte{}, true)
	f.Add([]byte("a\x00b\x00c\x00d"), []byte{0xff}, false)
	f.Fuzz(func(t *testing.T, key, value []byte, tombstone bool) {
		if tombstone {
			value = nil
		}
		got, err := DecodePresence(key, value, 1000)
		if err != nil {
			_, condemned := ReasonOf(err)
			require.True(t, condemned)
			return
		}
		require.Equal(t, key, got.Key())
		require.LessOrEqual(t, got.At, int64(1000))
		b, err := got.Encode()
		require.NoError(t, err)
		again, err := DecodePresence(key, b, 1000)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
