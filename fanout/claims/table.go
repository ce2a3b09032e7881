package claims

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// RowName is the registry row that holds the table.
const RowName = "outbox_claims"

// Bounds of a table that is read.
const (
	maxRowBytes   = 4 << 20
	maxInstances  = 4096
	maxPartitions = 1 << 20
	maxText       = 256
)

// Table says who is there and who works what.
type Table struct {
	Version   int        `json:"version"`
	Instances []Instance `json:"instances,omitempty"` // by name
	Claims    []Claim    `json:"claims,omitempty"`    // by partition
}

// Instance is one process that works outbox partitions.
type Instance struct {
	Name    string `json:"name"`
	Token   string `json:"token"` // of this run of it
	Address string `json:"address,omitempty"`
	// Beat rises with every write of the instance.
	Beat uint64 `json:"beat"`
	// Own is the set that the instance is to work; with Standby it takes others
	// that nobody works.
	Own []int32 `json:"own,omitempty"`
	// Partitions is how many there are by its settings; 0 in older rows.
	Partitions int  `json:"partitions,omitempty"`
	Standby    bool `json:"standby,omitempty"`
}

// Claim is a partition in an instance's hands. One that was let go has no token,
// and keeps its epoch.
type Claim struct {
	Partition int32  `json:"partition"`
	Token     string `json:"token,omitempty"`
	// Epoch rises with every change of hands.
	Epoch uint64 `json:"epoch"`
}

const tableVersion = 1

// Encode returns the row's bytes.
func (t *Table) Encode() ([]byte, error) {
	t.Version = tableVersion
	b, err := json.Marshal(t)
	if err == nil && len(b) > maxRowBytes {
		err = fmt.Errorf("the table of outbox claims has %d bytes, at most %d are allowed", len(b), maxRowBytes)
	}
	return b, err
}

// Decode reads what Encode wrote; no bytes are an empty table. What it does not
// know is mailbox.ErrCorrupt.
func Decode(b []byte) (Table, error) {
	if len(b) == 0 {
		return Table{Version: tableVersion}, nil
	}
	var t Table
	bad := func(format string, args ...any) (Table, error) {
		return Table{}, fmt.Errorf("%w: outbox claims: %s", mailbox.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	if len(b) > maxRowBytes {
		return bad("%d bytes", len(b))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return bad("%v", err)
	}
	if d.More() || t.Version != tableVersion || len(t.Instances) > maxInstances {
		return bad("version %d, %d instances", t.Version, len(t.Instances))
	}
	for i := range t.Instances {
		in := &t.Instances[i]
		if in.Name == "" || in.Token == "" || len(in.Name) > maxText || len(in.Token) > maxText || len(in.Address) > maxText {
			return bad("instance %d has no name or token", i)
		}
		if i > 0 && in.Name <= t.Instances[i-1].Name {
			return bad("instance %d is out of order", i)
		}
		for j, p := range in.Own {
			if p < 0 || p >= maxPartitions || j > 0 && p <= in.Own[j-1] {
				return bad("the set of instance %d is not one", i)
			}
		}
	}
	for i, c := range t.Claims {
		if c.Partition < 0 || c.Partition >= maxPartitions || c.Epoch == 0 || len(c.Token) > maxText || i > 0 && c.Partition <= t.Claims[i-1].Partition {
			return bad("claim %d", i)
		}
	}
	return t, nil
}

// byToken returns the instance of a token, or nil.
func (t *Table) byToken(token string) *Instance {
	for i := range t.Instances {
		if t.Instances[i].Token == token {
			return &t.Instances[i]
		}
	}
	return nil
}

// holder returns the instance that works a partition, or nil.
func (t *Table) holder(p int32) *Instance {
	i, found := slices.BinarySearchFunc(t.Claims, p, func(c Claim, p int32) int { return int(c.Partition) - int(p) })
	if !found || t.Claims[i].Token == "" {
		return nil
	}
	return t.byToken(t.Claims[i].Token)
}

// Holder returns the name of the instance that works a partition, "" for none.
func (t *Table) Holder(p int32) string {
	if in := t.holder(p); in != nil {
		return in.Name
	}
	return ""
}

// owner returns the instance whose own set has the partition, or nil.
func (t *Table) owner(p int32) *Instance {
	for i := range t.Instances {
		if _, has := slices.BinarySearch(t.Instances[i].Own, p); has {
			return &t.Instances[i]
		}
	}
	return nil
}

// Unheld returns which of the partitions 0..partitions-1 nobody works. An instance
// of another number of partitions works those of another topic (design 5.2).
func (t *Table) Unheld(partitions int) []int32 {
	var out []int32
	for p := range int32(partitions) {
		if h := t.holder(p); h == nil || h.Partitions != 0 && h.Partitions != partitions {
			out = append(out, p)
		}
	}
	return out
}

func (t *Table) clone() Table {
	out := *t
	out.Instances = slices.Clone(t.Instances)
	out.Claims = slices.Clone(t.Claims)
	return out
}

// remove takes an instance out, and its claims.
func (t *Table) remove(token string) {
	t.Instances = slices.DeleteFunc(t.Instances, func(in Instance) bool { return in.Token == token })
	for i := range t.Claims {
		if t.Claims[i].Token == token {
			t.Claims[i].Token = ""
		}
	}
}

// put adds or replaces an instance, by its name.
func (t *Table) put(in Instance) {
	i, found := slices.BinarySearchFunc(t.Instances, in.Name, func(a Instance, name string) int { return strings.Compare(a.Name, name) })
	if found {
		t.Instances[i] = in
		return
	}
	t.Instances = slices.Insert(t.Instances, i, in)
}

// take puts a partition into an instance's hands.
func (t *Table) take(p int32, token string) {
	i, found := slices.BinarySearchFunc(t.Claims, p, func(c Claim, p int32) int { return int(c.Partition) - int(p) })
	if !found {
		t.Claims = slices.Insert(t.Claims, i, Claim{Partition: p})
	}
	t.Claims[i].Token = token
	t.Claims[i].Epoch++
}

// release lets a partition go that is in the instance's hands.
func (t *Table) release(p int32, token string) {
	for i := range t.Claims {
		if t.Claims[i].Partition == p && t.Claims[i].Token == token {
			t.Claims[i].Token = ""
		}
	}
}

// heldBy returns the partitions in an instance's hands.
func (t *Table) heldBy(token string) []int32 {
	var out []int32
	for _, c := range t.Claims {
		if c.Token == token {
			out = append(out, c.Partition)
		}
	}
	return out
}
