package ingest

import (
	"time"

	"github.com/laneway/laneway/mailbox"
)

// LaneStatus is one lane as operators see it.
type LaneStatus struct {
	Lane       mailbox.Lane
	W, Floor   mailbox.Seq
	Unfinished int
	State      string // open, opening, stalled, slow, refused
}

// Status is a shard as operators see it.
type Status struct {
	Shard      mailbox.Shard
	Epoch      mailbox.Epoch
	W          mailbox.Watermarks
	Lag        int64
	Unfinished int // dispatches, large or not, that are not durable or degraded
	Slow       int
	// Unreadable counts the dispatches whose audience cannot be read: each holds
	// every lane. UnreadableSince is when the oldest of them was admitted.
	Unreadable      int
	UnreadableSince time.Time
	// Opening counts the lanes that are not read from yet, see [Shard.Opening].
	Opening int
	Lanes   []LaneStatus
}

// Ownership returns the shard's epoch and token.
func (s *Shard) Ownership() mailbox.Ownership { return s.own }

// W returns the durable watermark of a lane: what readers may see.
func (s *Shard) W(lane mailbox.Lane) mailbox.Seq { return s.committer.W(lane) }

// Refused returns why a lane is not served, or "".
func (s *Shard) Refused(lane mailbox.Lane) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[lane]
}

// Watch returns a channel that gets a tick after W of the lane moved.
func (s *Shard) Watch(lane mailbox.Lane) (changed <-chan struct{}, stop func()) {
	return s.committer.Watch(lane)
}

// Status returns the shard's state, with its lanes if asked.
func (s *Shard) Status(withLanes bool) Status {
	w := s.committer.Durable()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Shard: s.cfg.Shard, Epoch: s.own.Epoch, W: *w, Lag: max(s.logEnd.Load()-s.readTo.Load(), 0),
		Unfinished: len(s.plans) + len(s.unexpanded), Slow: len(s.slow),
		Unreadable: len(s.unexpanded),
	}
	for lane := range w.W {
		if !s.opening.open(w.W[lane]) {
			st.Opening++
		}
	}
	for _, u := range s.unexpanded {
		if st.UnreadableSince.IsZero() || u.since.Before(st.UnreadableSince) {
			st.UnreadableSince = u.since
		}
	}
	if !withLanes {
		return st
	}
	slow := map[mailbox.Lane]bool{}
	for k := range s.slow {
		slow[k.lane] = true
	}
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		l := LaneStatus{Lane: lane, W: w.W[lane], Floor: w.Floor[lane], Unfinished: s.tracker.Unfinished(lane), State: "open"}
		switch {
		case s.refused[lane] != "":
			l.State = "refused"
		case !s.opening.open(w.W[lane]):
			l.State = "opening"
		case slow[lane]:
			l.State = "slow"
		case s.stalled[lane].alerted:
			l.State = "stalled"
		}
		st.Lanes = append(st.Lanes, l)
	}
	return st
}

// Progress tells how far a dispatch is in this shard: the lanes that are
// durable and all its lanes. known is false when it is not in memory: finished,
// degraded, or not admitted yet.
func (s *Shard) Progress(seq mailbox.Seq) (done, lanes int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[seq]
	if p == nil {
		return 0, 0, false
	}
	return len(p.lanes) - p.left, len(p.lanes), true
}

// Large lists the unfinished large dispatches with the time since their
// admission.
func (s *Shard) Large() map[mailbox.DispatchID]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[mailbox.DispatchID]time.Duration{}
	now := s.cfg.Now()
	for _, p := range s.plans {
		if p.workflow {
			m[p.rec.DispatchID] = now.Sub(p.admitted)
		}
	}
	return m
}
