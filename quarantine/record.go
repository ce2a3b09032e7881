package quarantine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

const (
	// MaxDetailBytes bounds what is said about a record.
	MaxDetailBytes = 512
	// MaxValueBytes bounds what is kept of a record; Laneway's topics hold none
	// that is larger. The rest of a larger one is in its source topic only.
	MaxValueBytes = broker.MaxMessageBytes

	maxEncodedBytes = MaxValueBytes + 4096
)

var (
	// ErrNotRetryable: the record would end in quarantine again.
	ErrNotRetryable = errors.New("record cannot be retried")
	// ErrUnknown: there is no record at the place, or not any more.
	ErrUnknown = errors.New("no such record in quarantine")
)

// Record is one quarantined record.
type Record struct {
	Reason    records.Reason
	Detail    string
	Topic     string // where it was found
	Partition int32
	Offset    int64
	At        int64 // Unix ms, when it was quarantined
	Value     []byte
}

// From returns the record that err condemns; false when err does not.
func From(err error, topic string, partition int32, offset int64, value []byte) (Record, bool) {
	reason, ok := records.ReasonOf(err)
	return Record{Reason: reason, Detail: errText(err), Topic: topic, Partition: partition, Offset: offset, Value: value}, ok
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Retryable returns nil when publishing the value again can help: a digest
// conflict is one for ever, and a void version stays void.
func (r Record) Retryable() error {
	switch {
	case r.Reason == records.DigestConflict:
		return fmt.Errorf("%w: its dispatch_id belongs to another payload; send the message again under a new message_id", ErrNotRetryable)
	case r.Reason == records.VersionVoided:
		return fmt.Errorf("%w: its membership version stays void; send the message again", ErrNotRetryable)
	case len(r.Value) == 0:
		return fmt.Errorf("%w: it is empty", ErrNotRetryable)
	case len(r.Value) >= MaxValueBytes:
		return fmt.Errorf("%w: only its beginning may be kept here; read it from its source", ErrNotRetryable)
	}
	return nil
}

// Encode returns the bytes of the quarantine topic. Detail and value are cut to
// their bounds.
func (r Record) Encode() ([]byte, error) {
	value, detail := r.Value, r.Detail
	if len(value) > MaxValueBytes {
		detail = fmt.Sprintf("(the first %d of %d bytes are kept here) %s", MaxValueBytes, len(value), detail)
		value = value[:MaxValueBytes]
	}
	b, err := proto.Marshal(&logv1.QuarantinedRecord{
		SchemaVersion: records.SchemaVersion,
		Reason:        string(r.Reason),
		Detail:        cut(detail),
		Topic:         r.Topic,
		Partition:     r.Partition,
		Offset:        r.Offset,
		AtMs:          r.At,
		Value:         value,
	})
	if err != nil {
		return nil, fmt.Errorf("encode a quarantined record: %w", err)
	}
	return b, nil
}

// cut bounds a text and makes it valid UTF-8: it may quote the bad record.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxDetailBytes {
		return s
	}
	s = s[:MaxDetailBytes]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// Decode reads a record of the quarantine topic.
func Decode(b []byte) (Record, error) {
	if len(b) > maxEncodedBytes {
		return Record{}, records.NewError(records.TooLarge, nil, "%d bytes", len(b))
	}
	var p logv1.QuarantinedRecord
	if err := proto.Unmarshal(b, &p); err != nil {
		return Record{}, records.NewError(records.Undecodable, err, "not a quarantined record")
	}
	if p.GetSchemaVersion() != records.SchemaVersion {
		return Record{}, records.NewError(records.UnknownVersion, nil, "schema_version %d", p.GetSchemaVersion())
	}
	reason := records.Reason(p.GetReason())
	if !slices.Contains(records.Reasons(), reason) {
		return Record{}, records.NewError(records.Invalid, nil, "unknown reason %.40q", p.GetReason())
	}
	return Record{
		Reason: reason, Detail: p.GetDetail(), Topic: p.GetTopic(), Partition: p.GetPartition(),
		Offset: p.GetOffset(), At: p.GetAtMs(), Value: p.GetValue(),
	}, nil
}
