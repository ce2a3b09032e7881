package redis

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

// carryOut reads along a plan. If there is another one behind it, what was read is
// dropped: it may miss what came, or have what went, in between.
func (p *pageReader) carryOut(ctx context.Context, planned scanReply) error {
	left := p.most()
	var list []stretch
	more := false
	for i, s := range planned.plan {
		n := min(s.count, left)
		more = n < s.count || i+1 < len(planned.plan)
		s.count = n
		list = append(list, s)
		if left -= n; left == 0 {
			break
		}
	}
	all, found, err := p.readStretches(ctx, list)
	if err != nil {
		return err
	}
	if found.bounds != planned.bounds || !slices.Equal(found.plan, planned.plan) {
		p.stale++
		return nil
	}
	p.store.recent.note(p.q.User, planned.plan)
	return p.take(len(all), func(i int) string { return all[i] }, more)
}

// most is how many entries to read in one round trip.
func (p *pageReader) most() int64 {
	entries, bytes := p.wanted()
	size := largeEntry
	if p.items > 0 {
		size = p.bytes/p.items + 1
	}
	return int64(min(entries, bytes/size+1))
}

// readStretches reads as many entries of each stretch as it counts, and asks the
// script for a plan behind them, in one round trip.
func (p *pageReader) readStretches(ctx context.Context, list []stretch) (all []string, found scanReply, err error) {
	check := p.call("plan")
	pipe := p.store.rdb.Pipeline()
	reads := make([]*goredis.StringSliceCmd, len(list))
	for i, s := range list {
		reads[i] = pipe.ZRangeArgs(ctx, goredis.ZRangeArgs{Key: s.key, Start: s.min, Stop: s.max, ByScore: true, Count: s.count})
	}
	asked := pipe.Do(ctx, check.words(false)...)
	_, _ = pipe.Exec(ctx) // each command has its error
	for _, r := range reads {
		if err := r.Err(); err != nil {
			return nil, found, p.store.serverError("read a mailbox", err)
		}
		if all == nil {
			all = r.Val()
		} else {
			all = append(all, r.Val()...)
		}
	}
	val, err := asked.Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		r := p.store.run(ctx, []call{check})[0]
		val, err = r.val, r.err
	} else {
		err = p.store.serverError(scriptScan.name, err)
	}
	if err != nil {
		return nil, found, err
	}
	found, err = p.readReply(val)
	return all, found, err
}

// guess reads where the user's last page was, without a plan: a reader that goes
// on page after page is in the same day for most of them. What it read counts if
// the plan behind it has nothing but this day; else that plan is carried out. It
// reports false when there is nothing to guess by.
func (p *pageReader) guess(ctx context.Context) (bool, error) {
	last := p.store.recent.last(p.q.User)
	if last == nil || last.epoch < p.from.Epoch() || last.epoch > p.q.UpTo.Epoch() {
		return false, nil
	}
	s := stretch{key: last.key, min: "-inf", max: "+inf", count: p.most()}
	if last.epoch == p.from.Epoch() {
		s.min = p.open + strconv.FormatInt(p.from.Offset(), 10)
	}
	if last.epoch == p.q.UpTo.Epoch() {
		s.max = strconv.FormatInt(p.q.UpTo.Offset(), 10)
	}
	all, found, err := p.readStretches(ctx, []stretch{s})
	if err != nil {
		return true, err
	}
	count := int64(0)
	if len(found.plan) > 0 {
		count = found.plan[0].count
	}
	one := len(found.plan) == 0 || len(found.plan) == 1 && found.plan[0] == stretch{s.key, s.min, s.max, count, last.epoch}
	if n := int64(len(all)); !one || n != min(count, s.count) {
		p.store.recent.note(p.q.User, found.plan)
		if found.overlap {
			p.stale = planTries // for the script to read
			return true, nil
		}
		return true, p.carryOut(ctx, found)
	}
	return true, p.take(len(all), func(i int) string { return all[i] }, count > s.count)
}

// recentSlots is for how many users, at most, the store knows where they read.
const recentSlots = 1024

// recentReads remembers the day that users read last, where it was one. It is a
// hint: users whose hashes meet forget one another's.
type recentReads struct {
	seed  maphash.Seed
	slots [recentSlots]atomic.Pointer[recentRead]
}

type recentRead struct {
	user  mailbox.User
	epoch mailbox.Epoch
	key   string
}

func (r *recentReads) slot(u mailbox.User) *atomic.Pointer[recentRead] {
	return &r.slots[maphash.Comparable(r.seed, u)%recentSlots]
}

func (r *recentReads) last(u mailbox.User) *recentRead {
	if last := r.slot(u).Load(); last != nil && last.user == u {
		return last
	}
	return nil
}

// note remembers the day of a plan that has only one, and forgets another's.
func (r *recentReads) note(u mailbox.User, plan []stretch) {
	slot := r.slot(u)
	if len(plan) != 1 {
		if last := slot.Load(); last != nil && last.user == u {
			slot.CompareAndSwap(last, nil)
		}
		return
	}
	if last := slot.Load(); last == nil || last.user != u || last.key != plan[0].key {
		slot.Store(&recentRead{u, plan[0].epoch, plan[0].key})
	}
}
