package records

import (
	"math"
	"time"

	"github.com/laneway/laneway/mailbox"
)

const (
	// SchemaVersion is the version of every record that this build writes, and
	// the only one that it reads.
	SchemaVersion = 1

	// MaxOutboxBytes bounds an outbox record's value. It fits the 1 MiB that a
	// Kafka broker accepts by default.
	MaxOutboxBytes = 960 << 10
	// MaxDispatchBytes bounds a dispatch record's value.
	MaxDispatchBytes = 512 << 10
	// MaxRecipients is the most users of a SINGLE conversation.
	MaxRecipients = 16
	// MaxEvents is the most events of one outbox record.
	MaxEvents = 64
	// MaxNamedUsers is the most users that one event can name; an event for more
	// is an event for everybody.
	MaxNamedUsers = 512
	// MaxClockAhead is how far committed_at may be ahead of the broker's
	// timestamp.
	MaxClockAhead = time.Hour

	// maxCommittedAt is the end of the year 9999 in Unix ms.
	maxCommittedAt = 253402300799999
	maxShards      = math.MaxInt32
)

func checkSize(n, limit int) error {
	if n > limit {
		return NewError(TooLarge, nil, "%d bytes, at most %d are allowed", n, limit)
	}
	return nil
}

func checkVersion(v uint64) error {
	if v != SchemaVersion {
		return NewError(UnknownVersion, nil, "schema_version %d (this build reads %d): upgrade, then retry the record", v, SchemaVersion)
	}
	return nil
}

// checkTime validates committed_at against the broker's timestamp of the
// record, both in Unix ms.
func checkTime(committedAt, brokerAt int64) error {
	if committedAt < 0 || committedAt > maxCommittedAt {
		return NewError(Invalid, nil, "committed_at %d ms is outside the years 1970 to 9999", committedAt)
	}
	if committedAt > brokerAt+MaxClockAhead.Milliseconds() {
		return NewError(ClockAhead, nil, "committed_at is %s ahead of the broker (at most %s): check the writer's clock",
			time.Duration(committedAt-brokerAt)*time.Millisecond, MaxClockAhead)
	}
	return nil
}

func checkID(what, id string) error {
	// The common case first: printable ASCII needs no rune by rune look.
	if len(id) > 0 && len(id) <= mailbox.MaxIDBytes {
		ascii := true
		for i := range len(id) {
			if c := id[i]; c < 0x20 || c >= 0x7f {
				ascii = false
				break
			}
		}
		if ascii {
			return nil
		}
	}
	if err := mailbox.CheckID(what, id); err != nil {
		return invalid(err)
	}
	return nil
}

func checkRecipients(users []string) error {
	if len(users) < 1 || len(users) > MaxRecipients {
		return NewError(Invalid, nil, "%d recipients, 1 to %d are allowed", len(users), MaxRecipients)
	}
	for i, u := range users {
		if err := checkID("recipient", u); err != nil {
			return err
		}
		for _, o := range users[:i] {
			if o == u {
				return NewError(Invalid, nil, "a recipient is named twice")
			}
		}
	}
	return nil
}
