package quarantine

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/broker"
)

// Entry is a quarantined record and its place on the quarantine topic, by which
// it is shown and retried. Err is set instead of the record for bytes that are
// none.
type Entry struct {
	Offset int64
	Record Record
	Err    error
}

// Get returns the entry at a place, or ErrUnknown.
func Get(ctx context.Context, c broker.ClientConfig, topic string, offset int64) (Entry, error) {
	var found *Entry
	err := Scan(ctx, c, topic, offset, func(e Entry) bool {
		found = &e
		return false
	})
	if err != nil {
		return Entry{}, err
	}
	if found == nil || offset < 0 || found.Offset != offset {
		return Entry{}, fmt.Errorf("%w: offset %d", ErrUnknown, offset)
	}
	return *found, nil
}

// Scan calls f for the entries of the quarantine topic from an offset (negative:
// the first) up to the end as it is at the call, until f returns false.
func Scan(ctx context.Context, c broker.ClientConfig, topic string, from int64, f func(Entry) bool) error {
	cl, err := broker.NewClient(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	start, end, err := broker.Bounds(ctx, cl, topic, 0)
	if err != nil {
		return err
	}
	from = max(from, start)
	if from >= end {
		return nil
	}
	c.Registerer = nil
	r, err := broker.NewReader(ctx, c, topic, 0, from)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Position() < end {
		rs, err := r.Poll(ctx)
		if err != nil {
			return err
		}
		for _, rec := range rs {
			if rec.Offset >= end {
				return nil
			}
			e := Entry{Offset: rec.Offset}
			e.Record, e.Err = Decode(rec.Value)
			if !f(e) {
				return nil
			}
		}
	}
	return nil
}
