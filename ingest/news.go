package ingest

import (
	"context"
	"strings"

	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/mailbox"
)

// noteNews notes for whom a dispatch is, before W can pass it. While nobody wants
// to know it notes only that it did not: single chats then pay nothing for it.
func (s *Shard) noteNews(p *plan) {
	if s.news == nil {
		return
	}
	if !s.cfg.News.Wanted(s.cfg.Shard) {
		s.news.Forget()
		s.news.Unknown(p.seq)
		return
	}
	for i := range p.lanes {
		l := &p.lanes[i]
		it := news.Item{Seq: p.seq, Tenant: p.rec.Tenant, Audience: p.audience}
		if it.Audience == nil {
			// Cloned: the names are part of the record's bytes, and a lane that stands
			// still keeps its items for long.
			it.Users = make([]string, len(l.recipients))
			for j := range l.recipients {
				it.Users[j] = strings.Clone(l.recipients[j].User)
			}
		}
		s.news.Add(l.lane, it)
	}
}

// noteUnknown is for a dispatch that is not expanded again: an earlier owner made
// it durable.
func (s *Shard) noteUnknown(seq mailbox.Seq) {
	if s.news != nil {
		s.news.Unknown(seq)
	}
}

// newsLoop tells, after each move of W, what became visible. It runs beside the
// committer: whoever is slow to hear it holds up no commit.
func (s *Shard) newsLoop(ctx context.Context) error {
	moved, stop := s.committer.WatchAll()
	defer stop()
	defer s.cfg.News.Ended(s.cfg.Shard)
	var tell [mailbox.LaneCount]told
	for {
		// The first time at once: W may have moved before anybody watched.
		if s.cfg.News.Wanted(s.cfg.Shard) { // else: whoever comes now reads W after he is wanted
			s.tellNews(&tell)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-moved:
			if !open { // the committer ended, and the shard with it
				<-ctx.Done()
				return ctx.Err()
			}
		}
	}
}

// told is what is told of one lane.
type told struct {
	passed []news.Item
	all    bool
}

func (s *Shard) tellNews(tell *[mailbox.LaneCount]told) {
	// Who is told may ask for W at once, and finds what he was told of.
	w := s.committer.Durable().W
	s.mu.Lock()
	for lane := range tell {
		tell[lane].passed, tell[lane].all = s.news.Pop(mailbox.Lane(lane), w[lane])
	}
	s.mu.Unlock()
	for lane := range tell {
		if t := &tell[lane]; len(t.passed) > 0 || t.all {
			s.cfg.News.Visible(s.cfg.Shard, mailbox.Lane(lane), w[lane], t.passed, t.all)
			*t = told{}
		}
	}
}
