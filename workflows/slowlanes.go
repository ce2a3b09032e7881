package workflows

import (
	"slices"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// SlowLanes are lanes that went slow because of one error.
type SlowLanes struct {
	Lanes []mailbox.Lane
	Error string // of the first of them
}

// Names names the lanes: "lane 3", "lanes 3, 17 and 40".
func (s *SlowLanes) Names() string { return listed(s.Lanes) }

// GroupSlow puts together the lanes that tell of one error, in the order in which
// they come: a store that is away is the error of every lane, at length. Numbers
// don't make it another one, since they are ports, offsets and lanes.
func GroupSlow(reports []LaneReport) []SlowLanes {
	var groups []SlowLanes
	for _, r := range reports {
		words := withoutNumbers(r.Error)
		i := slices.IndexFunc(groups, func(g SlowLanes) bool { return withoutNumbers(g.Error) == words })
		if i < 0 {
			i, groups = len(groups), append(groups, SlowLanes{Error: r.Error})
		}
		groups[i].Lanes = append(groups[i].Lanes, r.Lane)
	}
	return groups
}

func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}
