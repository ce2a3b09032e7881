package metamorphic

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Position is a seq that is written as epoch:offset.
type Position mailbox.Seq

// MarshalText implements encoding.TextMarshaler.
func (p Position) MarshalText() ([]byte, error) { return []byte(mailbox.Seq(p).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Position) UnmarshalText(b []byte) error {
	s, err := mailbox.ParseSeq(string(b))
	*p = Position(s)
	return err
}

func (p Position) seq() mailbox.Seq { return mailbox.Seq(p) }

// Step is one operation of a history. Which fields it uses is up to Op; see do.
type Step struct {
	Op     string `json:"op"`
	Groups []Put  `json:"groups,omitempty"`

	User     string   `json:"user,omitempty"`
	After    Position `json:"after,omitempty"`
	UpTo     Position `json:"up_to,omitempty"`
	MaxItems int      `json:"max_items,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"`

	// Ms is how far the clock moves.
	Ms int64 `json:"ms,omitempty"`

	Shard      mailbox.Shard `json:"shard,omitempty"`
	Token      uint32        `json:"token,omitempty"`
	Epoch      mailbox.Epoch `json:"epoch,omitempty"`
	Offset     int64         `json:"offset,omitempty"`
	Stale      bool          `json:"stale,omitempty"` // by the owner before, or from an older state
	Frontier   Position      `json:"frontier,omitempty"`
	Lanes      []LaneSeq     `json:"lanes,omitempty"`
	Dispatches []Dispatch    `json:"dispatches,omitempty"`
	Marks      []Mark        `json:"marks,omitempty"`
	Repeats    []Repeat      `json:"repeats,omitempty"`
	Fences     []Fence       `json:"fences,omitempty"`
	Lane       mailbox.Lane  `json:"lane,omitempty"`
	Limit      int           `json:"limit,omitempty"`

	Conversation string                 `json:"conversation,omitempty"`
	Key          string                 `json:"key,omitempty"`
	Data         string                 `json:"data,omitempty"`
	Durable      bool                   `json:"durable,omitempty"`
	Generation   uint64                 `json:"generation,omitempty"`
	Version      uint64                 `json:"version,omitempty"`
	Slots        []mailbox.DirectoryRow `json:"slots,omitempty"`
}

// Put is one chunk: the groups of some users of one lane at one seq.
type Put struct {
	Seq     Position `json:"seq"`
	Created int64    `json:"created"` // ms from the start of the history
	// Payloads has one length for each event of the template, by type; -1 for none.
	Payloads [4]int `json:"payloads"`
	To       []To   `json:"to"`
}

// To is one recipient and the events it gets, counted through those of the template.
type To struct {
	User   string `json:"user"`
	Events uint8  `json:"events"`
}

// LaneSeq moves W of a lane.
type LaneSeq struct {
	Lane mailbox.Lane `json:"lane"`
	Seq  Position     `json:"seq"`
}

// Dispatch begins a dispatch. The one at a seq is named by it; At lets one begin
// elsewhere, which a store refuses if it knows it.
type Dispatch struct {
	Name       Position `json:"name"`
	At         Position `json:"at"`
	Unexpanded bool     `json:"unexpanded,omitempty"`
	Chunks     [3]int   `json:"chunks"` // of lanes 0, 31 and 63
	Digest     string   `json:"digest"`
}

// Mark marks a chunk.
type Mark struct {
	Name  Position     `json:"name"`
	Lane  mailbox.Lane `json:"lane"`
	Index int          `json:"index"`
}

// Repeat says that a dispatch was seen again.
type Repeat struct {
	Name   Position `json:"name"`
	Offset int64    `json:"offset"`
	SeenAt int64    `json:"seen_at"`
}

// Fence is the fencing memory of a conversation.
type Fence struct {
	Conversation string              `json:"conversation"`
	Base         uint64              `json:"base"`
	Seen         []mailbox.FenceSeen `json:"seen,omitempty"`
}

// History is what a run does.
type History struct {
	// Seed made it; it is told when it fails. 0 when it was made smaller.
	Seed  uint64 `json:"seed,omitempty"`
	Found string `json:"found,omitempty"` // what the difference was
	Steps []Step `json:"steps"`
}

// Load reads a history from a file.
func Load(path string) (*History, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var h History
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &h, nil
}

// Save writes a history to a file, a step a line.
func (h *History) Save(path string) error {
	found, err := json.Marshal(h.Found)
	if err != nil {
		return err
	}
	b := fmt.Appendf(nil, "{\"seed\": %d,\n \"found\": %s,\n \"steps\": [\n", h.Seed, found)
	for i := range h.Steps {
		line, err := json.Marshal(&h.Steps[i])
		if err != nil {
			return err
		}
		b = append(b, "  "...)
		b = append(b, line...)
		if i < len(h.Steps)-1 {
			b = append(b, ',')
		}
		b = append(b, '\n')
	}
	return os.WriteFile(path, append(b, " ]}\n"...), 0o600)
}

const (
	shards    = 4
	retention = 7
	tenant    = "tenant"
	day       = 24 * time.Hour
	// lease outlasts every history: stores differ in whether a lease ends with the
	// process that held it, so that histories end leases by releasing them.
	lease = 100_000 * time.Hour
)

var markLanes = [3]mailbox.Lane{0, 31, 63}
