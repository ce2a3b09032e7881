package mailbox

import (
	"math"
	"time"
)

// Day counts UTC days since 1970-01-01. An entry's day comes from its
// created_at, never from the time of writing, so that a replay lands in the
// same place (design 3, retention).
type Day int32

const dayMillis = 24 * 60 * 60 * 1000

// MinRetentionDays and MaxRetentionDays bound the mailbox retention.
const (
	MinRetentionDays = 1
	MaxRetentionDays = 29
)

// DayOf returns the day of a Unix time in ms. A time that no day can name, some
// five million years away, is the last or first day, never a wrapped one.
func DayOf(ms int64) Day {
	d := ms / dayMillis
	if ms%dayMillis < 0 {
		d--
	}
	return Day(min(max(d, math.MinInt32), math.MaxInt32))
}

// Expired reports whether the day's end plus the retention lies at or before
// now.
func (d Day) Expired(now time.Time, retentionDays int) bool {
	return now.UnixMilli() >= (int64(d)+1+int64(retentionDays))*dayMillis
}
