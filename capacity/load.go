package capacity

import (
	"errors"
	"fmt"
	"math"
)

// Load is what users do, each second, at the peak that is planned for.
type Load struct {
	Groups []Group `yaml:"groups" json:"groups"`
	// SingleChats are messages a second to single chats, SingleRecipients the users
	// that each goes to, the sender among them; 0: 2.
	SingleChats      float64 `yaml:"single_chats_per_second" json:"single_chats_per_second"`
	SingleRecipients float64 `yaml:"single_recipients" json:"single_recipients"`
}

// Group is a number of groups that are alike.
type Group struct {
	Name    string  `yaml:"name" json:"name"`
	Count   int     `yaml:"count" json:"count"` // 0: 1
	Members int     `yaml:"members" json:"members"`
	Rate    float64 `yaml:"messages_per_second" json:"messages_per_second"` // of each
}

const (
	maxMembers    = 1_000_000
	maxRecipients = 16
	maxRate       = 1e9
)

// Check returns everything that is wrong with the load.
func (l *Load) Check() error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	rate := func(what string, v float64) {
		if math.IsNaN(v) || v < 0 || v > maxRate {
			bad("%s is %v: use 0 to %.0f", what, v, maxRate)
		}
	}
	for i, g := range l.Groups {
		what := fmt.Sprintf("group %d (%s)", i+1, g.Name)
		if g.Members < 1 || g.Members > maxMembers {
			bad("%s: members is %d: use 1 to %d", what, g.Members, maxMembers)
		}
		if g.Count < 0 || g.Count > 1_000_000_000 {
			bad("%s: count is %d: use 1 to 1000000000", what, g.Count)
		}
		rate(what+": messages_per_second", g.Rate)
	}
	rate("single_chats_per_second", l.SingleChats)
	if r := l.SingleRecipients; r != 0 && !(r >= 1 && r <= maxRecipients) {
		bad("single_recipients is %v: use 1 to %d", r, maxRecipients)
	}
	if len(l.Groups) == 0 && l.SingleChats == 0 {
		bad("there is no load: give groups, or single_chats_per_second")
	}
	return errors.Join(all...)
}

// WithDefaults fills in what was left out.
func (l Load) WithDefaults() Load {
	groups := make([]Group, len(l.Groups))
	for i, g := range l.Groups {
		if groups[i] = g; g.Count == 0 {
			groups[i].Count = 1
		}
	}
	l.Groups = groups
	if l.SingleRecipients == 0 {
		l.SingleRecipients = 2
	}
	return l
}

// Messages is how many messages a second the groups get together.
func (g Group) Messages() float64 { return float64(g.Count) * g.Rate }

// Entries is how many entries a second that makes.
func (g Group) Entries() float64 { return g.Messages() * float64(g.Members) }
