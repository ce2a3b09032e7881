// Package pebble is the embedded mailbox store (design 3.1): one Pebble
// database in one locked directory, served by one process.
//
// It owns the bytes on disk and their order of becoming durable. It trusts its
// callers for placement only as far as it can check cheaply, and its own disk
// not at all: every row is decoded defensively and a bad one is ErrCorrupt.
//
// # Keys
//
// A key is one letter, then fixed-width big-endian numbers and ids. An id ends
// with a zero byte: ids hold no control characters (design 2.5, checked on
// every write), so that no id is a prefix of another and none can reach into
// another user's keys.
//
//	e day tenant user seq type    entry, canonical bytes
//	m day shard                   highest seq per lane of that day        (max)
//	x shard                       highest seq per lane of dropped days    (max)
//	b tenant user                 trim and gap boundary                   (max)
//	p shard seq 0                 dispatch progress
//	p shard seq 1                 last offset and time it was seen at     (max)
//	p shard seq 2                 chunk marks
//	d shard dispatch              seq of a dispatch
//	f shard tenant conversation   fence row of ingest
//	g partition tenant conv.      fence row of the coordinator
//	s shard                       ownership, lease, boundaries
//	w shard                       W and floor of all lanes
//	o shard                       observed frontier F                   (max)
//	h tenant conversation         head: revision and data
//	q tenant conversation         the head may be pending
//	c tenant conv. sender message committed row
//	v tenant group gen. version   membership manifest
//	B tenant group gen. version shard  bitmap
//	D tenant group gen. shard slot     directory row
//	L tenant group gen. user      largest slot of a user                  (last)
//	! name                        format, deployment, newest dropped day
//
// Entries are day-first, so that an expired day is dropped with one range
// delete. Which days a scan has to look at follows from the m rows alone: they
// are raised in the batch that writes the entries, and a day whose maximum for
// the user's lane is at or below the cursor is skipped. A pull near W therefore
// looks at one day, and appending costs no per-user bookkeeping.
//
// The rows marked (max) and (last) are written with a merge operator
// (merge.go): two writers cannot undo one another and no write needs a read.
//
// # Durability
//
// All writes go through one write-ahead log, and recovery keeps a prefix of it.
// So a write that is not synced is durable before any later synced write is.
// AppendBatch, CommitWatermarks, Fence, leases, boundaries, durable heads and
// membership versions sync. Begin, MarkChunks, committed rows and non-durable
// heads do not: each is followed, before anybody outside may rely on it, by a
// write that does (entries after Begin, W after marks).
//
// What is visible before it is durable could be told to a client and then lost.
// W, epochs and leases are therefore served from memory that is set after the
// sync, and a durable head is readable only after it.
//
// After a failed sync or a full disk nothing is served any more: see fatal.go.
package pebble
