package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/laneway/laneway/mailbox"
)

// Event is one line of a trace.
type Event struct {
	At       int64    `json:"t"` // Unix ms
	Room     string   `json:"room"`
	Type     string   `json:"type"` // join, leave, message, edit, redact, reaction
	User     string   `json:"user"`
	Msg      string   `json:"msg"`
	Mentions []string `json:"mentions"`
	Bytes    int      `json:"bytes"`

	// nobody: it is no join and the room is empty, so that it is for no mailbox
	// and there is nothing to commit.
	nobody bool
}

// Trace is a room's life, in order.
type Trace struct {
	Room   string
	Events []Event
	// Dispatching holds, for each conversation_seq from 1 on, the index of the
	// event that took it: repeated joins and leaves of non-members take none, nor
	// does what happens in an empty room.
	Dispatching []int
	Expected    Expected
}

// Expected is what every mailbox must hold, computed from the trace alone.
type Expected struct {
	Dispatched  int // events, those in an empty room included
	PeakMembers int
	ByType      map[string]int
	Lines       map[string][]string // by user, "TYPE msg-or-user"
}

// LoadTrace reads a trace file and works out what it must come to.
func LoadTrace(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	t := &Trace{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("trace %s line %d: %w", path, n, err)
		}
		if err := e.check(t.Room); err != nil {
			return nil, fmt.Errorf("trace %s line %d: %w", path, n, err)
		}
		t.Room = e.Room
		t.Events = append(t.Events, e)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	if len(t.Events) == 0 {
		return nil, fmt.Errorf("trace %s has no events", path)
	}
	t.expect()
	return t, nil
}

func (e *Event) check(room string) error {
	if room != "" && e.Room != room {
		return fmt.Errorf("room %q after room %q; a trace holds one room", e.Room, room)
	}
	if err := mailbox.CheckID("room", e.Room); err != nil {
		return err
	}
	if err := mailbox.CheckID("user", e.User); err != nil {
		return err
	}
	switch e.Type {
	case "join", "leave":
		return nil
	case "message", "edit", "redact", "reaction":
		for _, u := range e.Mentions {
			if err := mailbox.CheckID("mention", u); err != nil {
				return err
			}
		}
		return mailbox.CheckID("msg", e.Msg)
	}
	return fmt.Errorf("type %q; want join, leave, message, edit, redact or reaction", e.Type)
}

// expect is the oracle: the rules of the trace, applied to plain lists.
func (t *Trace) expect() {
	x := Expected{ByType: map[string]int{}, Lines: map[string][]string{}}
	members := map[string]bool{}
	give := func(kind, ref string, users map[string]bool) {
		for u := range users {
			x.Lines[u] = append(x.Lines[u], kind+" "+ref)
		}
		if len(users) > 0 {
			x.ByType[kind] += len(users)
		}
	}
	for i, e := range t.Events {
		switch e.Type {
		case "join":
			if members[e.User] {
				continue
			}
			members[e.User] = true
			give("MEMBERSHIP", e.User, members)
		case "leave":
			if !members[e.User] {
				t.Events[i].nobody = len(members) == 0
				continue
			}
			give("MEMBERSHIP", e.User, members)
			delete(members, e.User)
		case "message":
			give("MESSAGE", e.Msg, members)
			for _, u := range e.Mentions {
				if members[u] {
					give("MENTION", e.Msg, map[string]bool{u: true})
				}
			}
		default:
			give("CONTROL", e.Msg, members)
		}
		x.Dispatched++
		if len(members) == 0 && e.Type != "leave" {
			t.Events[i].nobody = true
		} else {
			t.Dispatching = append(t.Dispatching, i)
		}
		x.PeakMembers = max(x.PeakMembers, len(members))
	}
	t.Expected = x
}
