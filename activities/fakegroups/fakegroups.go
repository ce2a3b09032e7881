// Package fakegroups is an activities.Groups for tests: a group whose steps
// succeed, unless a test has scripted something else.
package fakegroups

import (
	"context"
	"sync"
	"time"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// Op is one of the steps.
type Op string

// The steps.
const (
	Close  Op = "close"
	Switch Op = "switch"
	Reopen Op = "reopen"
)

// Groups is one group. Make one with [New].
type Groups struct {
	mu     sync.Mutex
	script map[Op][]func(context.Context) error
	calls  []Op
	token  string // who has closed the group
	made   map[string]conversation.RenumberResult
}

// New returns a group that is open.
func New() *Groups {
	return &Groups{script: map[Op][]func(context.Context) error{}, made: map[string]conversation.RenumberResult{}}
}

// Script sets what becomes of the next calls of a step, one after the other; nil
// is a call that does as usual, and so are those after the last.
func (g *Groups) Script(op Op, steps ...func(context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.script[op] = append(g.script[op], steps...)
}

// Fail is a step that fails.
func Fail(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// Calls returns the steps that were called, in order.
func (g *Groups) Calls() []Op {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Op(nil), g.calls...)
}

// Closed reports whether the group is closed.
func (g *Groups) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token != ""
}

// Open opens the group, as a deadline does.
func (g *Groups) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.token = ""
}

// Decide renumbers the group as the token that closed it would.
func (g *Groups) Decide() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decide(g.token)
}

func (g *Groups) decide(token string) conversation.RenumberResult {
	n := uint64(len(g.made))
	r := conversation.RenumberResult{
		GroupVersion:    mailbox.GroupVersion{Group: mailbox.Group{Tenant: "acme", ID: "all-hands"}, Generation: n + 2, Version: n + 8},
		ConversationSeq: n + 41, MemberCount: 3,
	}
	g.made[token] = r
	g.token = ""
	return r
}

func (g *Groups) begin(ctx context.Context, op Op) error {
	g.mu.Lock()
	g.calls = append(g.calls, op)
	var step func(context.Context) error
	if list := g.script[op]; len(list) > 0 {
		step, g.script[op] = list[0], list[1:]
	}
	g.mu.Unlock()
	if step == nil {
		return nil
	}
	return step(ctx)
}

// CloseForRenumbering implements activities.Groups.
func (g *Groups) CloseForRenumbering(ctx context.Context, r conversation.RenumberRequest) (conversation.Closing, *conversation.RenumberResult, error) {
	if err := g.begin(ctx, Close); err != nil {
		return conversation.Closing{}, nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if made, ok := g.made[r.Token]; ok {
		return conversation.Closing{}, &made, nil
	}
	if g.token != "" && g.token != r.Token {
		return conversation.Closing{}, nil, conversation.ErrGroupRenumbering
	}
	g.token = r.Token
	since := time.Now()
	return conversation.Closing{Token: r.Token, Since: since, Deadline: since.Add(30 * time.Second)}, nil, nil
}

// RenumberGroup implements activities.Groups.
func (g *Groups) RenumberGroup(ctx context.Context, r conversation.RenumberRequest) (conversation.RenumberResult, error) {
	if err := g.begin(ctx, Switch); err != nil {
		return conversation.RenumberResult{}, err
	}
	r.Progress(2, 2)
	g.mu.Lock()
	defer g.mu.Unlock()
	if made, ok := g.made[r.Token]; ok {
		return made, nil
	}
	if g.token != r.Token {
		return conversation.RenumberResult{}, conversation.ErrRenumberingLost
	}
	return g.decide(r.Token), nil
}

// ReopenGroup implements activities.Groups.
func (g *Groups) ReopenGroup(ctx context.Context, r conversation.RenumberRequest) (*conversation.RenumberResult, error) {
	if err := g.begin(ctx, Reopen); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if made, ok := g.made[r.Token]; ok {
		return &made, nil
	}
	if g.token == r.Token {
		g.token = ""
	}
	return nil, nil
}
