package mailbox

import "fmt"

// ChunkEntries is the most entries a chunk holds; a chunk is cut between users.
const ChunkEntries = 2000

// Recipient is one user of a dispatch in one lane, with the events it gets.
type Recipient struct {
	User   string
	Events uint8 // bit i: event i of the template
}

// Has reports whether the recipient gets event i.
func (r Recipient) Has(i int) bool { return r.Events&(1<<i) != 0 }

// Count returns the number of entries in the recipient's event group.
func (r Recipient) Count() int {
	n := 0
	for e := r.Events; e != 0; e &= e - 1 {
		n++
	}
	return n
}

// CountEntries returns the number of entries of all recipients.
func CountEntries(rs []Recipient) int {
	n := 0
	for _, r := range rs {
		n += r.Count()
	}
	return n
}

// CutChunks returns the end index of each chunk of a lane's recipients, which
// are in slot order, so that the cuts are the same on every replay. size is the
// chunk size the dispatch began with.
func CutChunks(rs []Recipient, size int) []int {
	var ends []int
	n := 0
	for i, r := range rs {
		c := r.Count()
		if n > 0 && n+c > size {
			ends = append(ends, i)
			n = 0
		}
		n += c
	}
	if len(rs) > 0 {
		ends = append(ends, len(rs))
	}
	return ends
}

// ChunkRef names one chunk: the unit of appending, of marking and of retrying.
type ChunkRef struct {
	Shard    Shard
	Dispatch DispatchID
	Seq      Seq
	Lane     Lane
	Index    int // within the lane, from 0
}

// String names the chunk in logs and errors; it holds no user-given text.
func (c ChunkRef) String() string {
	return fmt.Sprintf("dispatch %s shard %d seq %s lane %d chunk %d", c.Dispatch, c.Shard, c.Seq, c.Lane, c.Index)
}

// LaneChunks is one non-empty lane of a manifest.
type LaneChunks struct {
	Lane   Lane
	Users  int
	Chunks int
}

// Manifest is what a dispatch must make durable in one shard. It is stored
// before anything is appended and must be the same on every replay.
type Manifest struct {
	EntryVersion uint8
	ChunkSize    int
	Audience     Digest // of the frozen version's manifest, or the payload digest that covers the user list
	Entries      int
	Lanes        []LaneChunks // ascending by lane
}

// Chunks returns the number of chunks in all lanes.
func (m *Manifest) Chunks() int {
	n := 0
	for _, l := range m.Lanes {
		n += l.Chunks
	}
	return n
}

// ChunkNumber returns a chunk's number counted through the lanes, and false
// when the manifest has no such chunk.
func (m *Manifest) ChunkNumber(lane Lane, index int) (int, bool) {
	n := 0
	for _, l := range m.Lanes {
		if l.Lane == lane {
			if index < 0 || index >= l.Chunks {
				return 0, false
			}
			return n + index, true
		}
		n += l.Chunks
	}
	return 0, false
}

// Equal reports whether two manifests demand the same.
func (m *Manifest) Equal(o *Manifest) bool {
	if m.EntryVersion != o.EntryVersion || m.ChunkSize != o.ChunkSize || m.Audience != o.Audience || m.Entries != o.Entries || len(m.Lanes) != len(o.Lanes) {
		return false
	}
	for i := range m.Lanes {
		if m.Lanes[i] != o.Lanes[i] {
			return false
		}
	}
	return true
}

// ChunkSet is a set of chunk numbers of one manifest.
type ChunkSet []uint64

// NewChunkSet returns an empty set for n chunks.
func NewChunkSet(n int) ChunkSet { return make(ChunkSet, (n+63)/64) }

// Add puts chunk number i into the set.
func (s ChunkSet) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Has reports whether chunk number i is in the set; numbers beyond it are not.
func (s ChunkSet) Has(i int) bool { return i/64 < len(s) && s[i/64]&(1<<(i%64)) != 0 }
