package shadow

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Opener opens the store that is to be the shadow. It is called again after an
// error, so that a shadow that is down when the process starts is found later.
type Opener func(ctx context.Context) (mailbox.Store, error)

// Options configure a shadow.
type Options struct {
	// Sample is the share of scans that are compared, from 0 (none: the shadow only
	// takes writes, while it is being filled) to 1.
	Sample float64
	// MaxLag is how many entries may be on their way to the shadow; 0 is 500,000. It
	// bounds the memory: about 100 bytes each.
	MaxLag int
	// Timeout is how long one call of the shadow may take; 0 is 10 s.
	Timeout time.Duration
	// Settle is how long a difference is looked at again before it counts; 0 is 10 s.
	Settle time.Duration
	// Comparisons is how many scans are compared at a time; 0 is 8. What is sampled
	// beyond that is passed over.
	Comparisons int
	// Drain is how long Close waits for what is on its way; 0 is 10 s.
	Drain time.Duration
	// Hooks are told what metrics need.
	Hooks Hooks
	// Logger gets mismatches and troubles; nil discards them.
	Logger *slog.Logger
	// Random replaces the sampling's dice.
	Random func() float64
}

// Hooks are called as things happen, from any goroutine. Each may be nil.
type Hooks struct {
	// Scan is told the outcome of every sampled scan.
	Scan func(Outcome)
	// Lag is told how many entries are on their way.
	Lag func(entries int)
	// Lost is told how many writes the shadow will never get from here.
	Lost func(why Loss, writes int)
}

// Outcome is what became of a sampled scan.
type Outcome string

// The outcomes. Those of mismatches say what differs first.
const (
	Match   Outcome = "match"
	Missing Outcome = "missing" // the shadow lacks an entry
	Extra   Outcome = "extra"   // the shadow has one more
	Differs Outcome = "differs" // other bytes
	Covered Outcome = "covered" // the same entries, another coveredThrough
	Expired Outcome = "expired" // only one of both calls the cursor expired
	Failed  Outcome = "failed"  // the shadow did not answer
	Skipped Outcome = "skipped" // too many at a time, too far behind, or of a user that a write was lost of
)

// Mismatch reports whether the outcome is a difference.
func (o Outcome) Mismatch() bool {
	switch o {
	case Missing, Extra, Differs, Covered, Expired:
		return true
	}
	return false
}

// Outcomes are all of them.
func Outcomes() []string {
	return []string{string(Match), string(Missing), string(Extra), string(Differs), string(Covered), string(Expired), string(Failed), string(Skipped)}
}

// Loss is why the shadow does not get a write.
type Loss string

// The reasons.
const (
	// Dropped: too much was on its way already.
	Dropped Loss = "dropped"
	// Refused: the shadow will never take it.
	Refused Loss = "refused"
	// Undelivered: the process ended first.
	Undelivered Loss = "undelivered"
)

// Losses are all of them.
func Losses() []string { return []string{string(Dropped), string(Refused), string(Undelivered)} }

func (o Options) withDefaults() Options {
	if o.MaxLag <= 0 {
		o.MaxLag = 500_000
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Settle <= 0 {
		o.Settle = 10 * time.Second
	}
	if o.Comparisons <= 0 {
		o.Comparisons = 8
	}
	if o.Drain <= 0 {
		o.Drain = 10 * time.Second
	}
	if o.Hooks.Scan == nil {
		o.Hooks.Scan = func(Outcome) {}
	}
	if o.Hooks.Lag == nil {
		o.Hooks.Lag = func(int) {}
	}
	if o.Hooks.Lost == nil {
		o.Hooks.Lost = func(Loss, int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o
}
