package retention

import (
	"errors"
	"fmt"
	"time"
)

// Margin is how much longer versions are kept than what may refer to them: for
// clocks that differ (a committed_at may be an hour ahead) and for processes that
// were paused with a record in hand.
const Margin = 2 * time.Hour

// Settings are what an operator wants. The zero value keeps everything for ever.
type Settings struct {
	// Versions is how long a membership version is kept after it was superseded; 0:
	// for ever.
	Versions time.Duration
	// ReplayWindow is how long dispatch progress is kept after the dispatch was last
	// seen; 0: for ever.
	ReplayWindow time.Duration
	// Apply removes; else it is only counted what would be.
	Apply bool
	// Every is the time between two runs of the schedule.
	Every time.Duration
}

// On reports whether anything is ever removed or counted.
func (s Settings) On() bool { return s.Versions > 0 || s.ReplayWindow > 0 }

// Forever stands for a log that keeps its records for ever.
const Forever time.Duration = -1

// LogRetention is how long the topics keep their records.
type LogRetention struct {
	Outbox, Dispatch time.Duration
}

// longest returns the longer one and its topic.
func (l LogRetention) longest() (string, time.Duration) {
	if l.Outbox == Forever || l.Dispatch != Forever && l.Outbox >= l.Dispatch {
		return "outbox", l.Outbox
	}
	return "dispatch", l.Dispatch
}

// ErrChain says that the settings do not fit each other or the log.
var ErrChain = errors.New("the retention settings do not fit together")

// ChainError is one link that does not hold.
type ChainError struct {
	Key  string // the setting to change
	What string // with both values
	Fix  string
}

// Error implements error.
func (e *ChainError) Error() string { return fmt.Sprintf("%v: %s; %s", ErrChain, e.What, e.Fix) }

// Unwrap lets errors.Is find ErrChain.
func (e *ChainError) Unwrap() error { return ErrChain }

// Check verifies the chain (design 3, "checked jointly at start"): versions outlive
// all that may refer to them, and progress outlives the outbox records that could be
// dispatched again. It returns the first link that does not hold.
func Check(s Settings, l LogRetention, margin time.Duration) error {
	topic, log := l.longest()
	if s.ReplayWindow > 0 {
		switch {
		case l.Outbox == Forever:
			return &ChainError{
				"retention.replay_window",
				fmt.Sprintf("retention.replay_window is %s, and the outbox topic keeps its records for ever: one that is dispatched again after its progress has gone is delivered twice", s.ReplayWindow),
				"set retention.ms on the outbox topic, or retention.replay_window to 0",
			}
		case s.ReplayWindow < l.Outbox+margin:
			return &ChainError{
				"retention.replay_window",
				fmt.Sprintf("retention.replay_window is %s, and the outbox topic keeps its records for %s: one that is dispatched again after its progress has gone is delivered twice", s.ReplayWindow, l.Outbox),
				fmt.Sprintf("set retention.replay_window to %s or more, or to 0", l.Outbox+margin),
			}
		}
	}
	if s.Versions <= 0 {
		return nil
	}
	switch {
	case s.ReplayWindow <= 0:
		return &ChainError{
			"retention.versions",
			fmt.Sprintf("retention.versions is %s, and dispatch progress is kept for ever (retention.replay_window is 0), so that versions are kept for ever too: progress refers to them", s.Versions),
			"set retention.replay_window, or retention.versions to 0",
		}
	case log == Forever:
		return &ChainError{
			"retention.versions",
			fmt.Sprintf("retention.versions is %s, and the %s topic keeps its records for ever: they refer to versions", s.Versions, topic),
			"set retention.ms on the topic, or retention.versions to 0",
		}
	}
	needs, because := log, fmt.Sprintf("the %s topic keeps its records for %s", topic, log)
	if s.ReplayWindow >= log {
		needs, because = s.ReplayWindow, fmt.Sprintf("retention.replay_window keeps dispatch progress for %s", s.ReplayWindow)
	}
	if s.Versions < needs+margin {
		return &ChainError{
			"retention.versions",
			fmt.Sprintf("retention.versions is %s, and %s: versions have to outlive that by %s", s.Versions, because, margin),
			fmt.Sprintf("set retention.versions to %s or more, or to 0", needs+margin),
		}
	}
	return nil
}
