package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fanout divides the outbox partitions among coordinator instances (design 5.1).
type Fanout struct {
	// Partitions is this instance's own set: all, none, or a list like 0-31,40.
	Partitions string `koanf:"partitions"`
	// Standby lets it take partitions that no instance works.
	Standby bool `koanf:"standby"`
}

// Own returns the set, ascending.
func (f Fanout) Own(partitions int) ([]int32, error) {
	var own []int32
	switch f.Partitions {
	case "none":
		return nil, nil
	case "", "all":
		for p := range int32(partitions) {
			own = append(own, p)
		}
		return own, nil
	}
	for part := range strings.SplitSeq(f.Partitions, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 31)
		to, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 31)
		switch {
		case err1 != nil || err2 != nil || from > to:
			return nil, fmt.Errorf("%q is no partition and no range of them", strings.TrimSpace(part))
		case to >= uint64(partitions):
			return nil, fmt.Errorf("%q is beyond the last partition, %d", strings.TrimSpace(part), partitions-1)
		}
		for p := from; p <= to; p++ {
			own = append(own, int32(p))
		}
	}
	slices.Sort(own)
	for i := range own {
		if i > 0 && own[i] == own[i-1] {
			return nil, fmt.Errorf("partition %d is named twice", own[i])
		}
	}
	return own, nil
}

// Shared reports whether other instances can work partitions beside this one:
// they need the same store and the same log.
func (c *Config) Shared() bool { return c.Store.Kind() != Pebble && len(c.Log.Brokers) > 0 }

func (c *Config) checkFanout(bad func(key, fix, format string, args ...any)) {
	own, err := c.Fanout.Own(c.OutboxPartitions)
	switch {
	case err != nil:
		bad("fanout.partitions", "use all, none, or a list like 0-31,40", "%v", err)
	case !c.Shared() && (len(own) != c.OutboxPartitions || c.Fanout.Standby):
		bad("fanout.partitions", "use all without standby, or set store.url to a server and log.brokers", "no other instance can work the rest: the store or the log is this machine's own")
	}
}
