package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// RowName is the registry row that holds the layout.
const RowName = "outbox_layout"

// State is how far a topic's part in the outbox has come.
type State string

// The states of a topic, in order.
const (
	Open    State = "open"    // records may come
	Sealed  State = "sealed"  // no record can come; up to Ends it is dispatched
	Drained State = "drained" // everything was dispatched
	Deleted State = "deleted" // nobody reads it, and it may be gone
)

// Topic is one topic of the outbox.
type Topic struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	State      State  `json:"state"`
	// Ends are the ends of its partitions, from Sealed on, and SealedMs is when that
	// was, in Unix ms.
	Ends     []int64 `json:"ends,omitempty"`
	SealedMs int64   `json:"sealed_ms,omitempty"`
}

// Layout names the topics of an outbox, the first one first; without any, no
// migration was ever begun.
type Layout struct {
	Version int     `json:"version"`
	Topics  []Topic `json:"topics"`
	// Switched says that writers may use the last topic; before, they use the one
	// before it.
	Switched bool `json:"switched"`
}

const (
	layoutVersion  = 1
	maxLayoutBytes = 1 << 20
	maxTopics      = 16
	// MaxPartitions bounds the partitions of one topic: the store's numbers of
	// partitions are divided among the topics by it.
	MaxPartitions = 4096
)

// Encode returns the row's bytes.
func (l *Layout) Encode() ([]byte, error) {
	l.Version = layoutVersion
	return json.Marshal(l)
}

// Decode reads what Encode wrote; no bytes are no layout. What it does not know is
// mailbox.ErrCorrupt.
func Decode(b []byte) (Layout, error) {
	if len(b) == 0 {
		return Layout{Version: layoutVersion}, nil
	}
	bad := func(format string, args ...any) (Layout, error) {
		return Layout{}, fmt.Errorf("%w: outbox layout: %s", mailbox.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	if len(b) > maxLayoutBytes {
		return bad("%d bytes", len(b))
	}
	var l Layout
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return bad("%v", err)
	}
	if d.More() || l.Version != layoutVersion || len(l.Topics) < 2 || len(l.Topics) > maxTopics {
		return bad("version %d with %d topics", l.Version, len(l.Topics))
	}
	for i := range l.Topics {
		t := &l.Topics[i]
		last := i == len(l.Topics)-1
		switch {
		case t.Name == "" || len(t.Name) > 249 || t.Partitions < 1 || t.Partitions > MaxPartitions:
			return bad("topic %d has %d partitions", i, t.Partitions)
		case i > 0 && t.Partitions <= l.Topics[i-1].Partitions:
			return bad("topic %d has no more partitions than the one before", i)
		case t.State != Open && t.State != Sealed && t.State != Drained && t.State != Deleted:
			return bad("topic %d is in state %q", i, t.State)
		case last && t.State != Open, !last && i < len(l.Topics)-2 && (t.State == Open || t.State == Sealed):
			return bad("topic %d is %s", i, t.State)
		case (t.State == Open) != (len(t.Ends) == 0), t.State != Open && len(t.Ends) != t.Partitions, t.State != Open && !last && i == len(l.Topics)-2 && !l.Switched:
			return bad("topic %d is %s with %d ends", i, t.State, len(t.Ends))
		}
		for _, e := range t.Ends {
			if e < 0 || e > mailbox.MaxOffset+1 {
				return bad("topic %d ends at %d", i, e)
			}
		}
	}
	return l, nil
}

// Load reads the layout of a store and its revision.
func Load(ctx context.Context, st mailbox.RegistryStore) (Layout, uint64, error) {
	data, revision, err := st.LoadRegistry(ctx, RowName)
	if err != nil {
		return Layout{}, 0, fmt.Errorf("read the outbox layout: %w", err)
	}
	l, err := Decode(data)
	return l, revision, err
}

// Use is what a process uses of the outbox.
type Use struct {
	// Generation is the place of Topic in the layout, 0 for the first.
	Generation int
	Topic      string
	Partitions int
	// Earlier are the topics before it.
	Earlier []Topic
	// First is the number of partitions in the deployment row.
	First int
	// Switches: writers that use Topic have to note it first.
	Switches bool
}

// TopicName returns the name of a generation's topic.
func TopicName(prefix string, generation int) string {
	if generation == 0 {
		return prefix + ".outbox"
	}
	return fmt.Sprintf("%s.outbox.%d", prefix, generation+1)
}

// Use returns what a process with a number of partitions in its settings uses, or
// mailbox.ErrDeploymentMismatch.
func (l *Layout) Use(prefix string, partitions int) (Use, error) {
	if len(l.Topics) == 0 {
		return Use{Topic: TopicName(prefix, 0), Partitions: partitions, First: partitions}, nil
	}
	last := len(l.Topics) - 1
	g := -1
	switch {
	case l.Topics[last].Partitions == partitions:
		g = last
	case !l.Switched && l.Topics[last-1].Partitions == partitions:
		g = last - 1
	}
	if g < 0 {
		want := fmt.Sprint(l.Topics[last].Partitions)
		if !l.Switched {
			want = fmt.Sprintf("%d, or %d until the first writer has switched", l.Topics[last].Partitions, l.Topics[last-1].Partitions)
		}
		return Use{}, fmt.Errorf("%w: the outbox was migrated to the topic %s: set outbox_partitions to %s, not %d", mailbox.ErrDeploymentMismatch, l.Topics[last].Name, want, partitions)
	}
	return Use{
		Generation: g, Topic: l.Topics[g].Name, Partitions: l.Topics[g].Partitions, Earlier: l.Topics[:g], First: l.Topics[0].Partitions,
		Switches: g == last && !l.Switched,
	}, nil
}

// EarlierPartitions returns the numbers of partitions of the earlier topics.
func (u *Use) EarlierPartitions() []int {
	var out []int
	for _, t := range u.Earlier {
		out = append(out, t.Partitions)
	}
	return out
}

// DeleteAfter returns when a sealed topic may be deleted, given how long it keeps
// records.
func (t *Topic) DeleteAfter(retention time.Duration) time.Time {
	return time.UnixMilli(t.SealedMs).Add(retention)
}
