// Package rows is the encoding of the stores' small rows: ownership, watermarks,
// deployment, fences, dispatch progress and the commit state. Every store that
// keeps such a row as bytes uses it, so that there is one decoder to trust and
// one format to read.
//
// It owns the bytes and trusts none that it reads: decoders are bounded, never
// panic, and answer mailbox.ErrCorrupt. It does no I/O. Design:
// docs/design/03-mailbox-store.md.
package rows

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Rows are a version byte, then fixed-width big-endian numbers and
// length-prefixed bytes in a fixed order.
const rowVersion = 1

type rowWriter struct{ b []byte }

func newRow(size int) *rowWriter { return &rowWriter{append(make([]byte, 0, size+1), rowVersion)} }

func (w *rowWriter) u8(v uint8)   { w.b = append(w.b, v) }
func (w *rowWriter) u32(v uint32) { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *rowWriter) u64(v uint64) { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *rowWriter) uint(v int)   { w.b = binary.AppendUvarint(w.b, uint64(v)) }
func (w *rowWriter) raw(v []byte) { w.b = append(w.b, v...) }
func (w *rowWriter) bytes(v []byte) {
	w.uint(len(v))
	w.raw(v)
}

// rowReader reads what rowWriter wrote. After the first fault it reads zeros;
// end reports it.
type rowReader struct {
	what string
	b    []byte
	bad  bool
}

func readRow(what string, b []byte) *rowReader {
	r := &rowReader{what: what, b: b}
	if v := r.u8(); v != rowVersion {
		r.bad = true
	}
	return r
}

func (r *rowReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
	}
	if r.bad {
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *rowReader) u8() uint8 {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *rowReader) u32() uint32 {
	if v := r.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (r *rowReader) u64() uint64 {
	if v := r.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (r *rowReader) seq() mailbox.Seq { return mailbox.Seq(r.u64()) }

// uint reads a number that must not be above limit.
func (r *rowReader) uint(limit int) int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(limit) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// bytes reads a copy of length-prefixed bytes.
func (r *rowReader) bytes() []byte {
	return append([]byte(nil), r.take(r.uint(len(r.b)))...)
}

func (r *rowReader) end() error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: the %s row cannot be decoded", mailbox.ErrCorrupt, r.what)
	}
	return nil
}

// EncodeOwnership encodes who owns a shard, without its watermarks and incarnation.
func EncodeOwnership(st *mailbox.ShardState) []byte {
	w := newRow(64 + len(st.Owner) + len(st.Address) + 10*len(st.Boundaries))
	w.u32(uint32(st.Epoch))
	w.raw(st.Token[:])
	w.bytes([]byte(st.Owner))
	w.bytes([]byte(st.Address))
	lease := int64(0)
	if !st.LeaseUntil.IsZero() {
		lease = st.LeaseUntil.UnixNano()
	}
	w.u64(uint64(lease))
	w.uint(len(st.Boundaries))
	for _, b := range st.Boundaries {
		w.u32(uint32(b.Epoch))
		w.u64(uint64(b.Offset))
	}
	return w.b
}

// DecodeOwnership reads what EncodeOwnership wrote into st.
func DecodeOwnership(b []byte, st *mailbox.ShardState) error {
	r := readRow("ownership", b)
	st.Epoch = mailbox.Epoch(r.u32())
	copy(st.Token[:], r.take(len(st.Token)))
	st.Owner = string(r.bytes())
	st.Address = string(r.bytes())
	if lease := int64(r.u64()); lease != 0 {
		st.LeaseUntil = time.Unix(0, lease)
	}
	if n := r.uint(len(r.b) / 12); n > 0 {
		st.Boundaries = make([]mailbox.Boundary, n)
	}
	for i := range st.Boundaries {
		st.Boundaries[i].Epoch = mailbox.Epoch(r.u32())
		st.Boundaries[i].Offset = int64(r.u64())
	}
	return r.end()
}

// EncodeWatermarks encodes W and floor of all lanes; F has its own row.
func EncodeWatermarks(m *mailbox.Watermarks) []byte {
	w := newRow(16 * mailbox.LaneCount)
	for i := range m.W {
		w.u64(uint64(m.W[i]))
	}
	for i := range m.Floor {
		w.u64(uint64(m.Floor[i]))
	}
	return w.b
}

// DecodeWatermarks reads W and floor; F has its own row.
func DecodeWatermarks(b []byte, m *mailbox.Watermarks) error {
	r := readRow("watermark", b)
	for i := range m.W {
		m.W[i] = r.seq()
	}
	for i := range m.Floor {
		m.Floor[i] = r.seq()
	}
	return r.end()
}

// EncodeDeployment encodes what never changes in a store.
func EncodeDeployment(d mailbox.Deployment) []byte {
	w := newRow(12)
	w.u32(uint32(d.ShardCount))
	w.u32(uint32(d.OutboxPartitions))
	w.u32(uint32(d.HashVersion))
	return w.b
}

// DecodeDeployment reads what EncodeDeployment wrote.
func DecodeDeployment(b []byte) (mailbox.Deployment, error) {
	r := readRow("deployment", b)
	d := mailbox.Deployment{ShardCount: int(r.u32()), OutboxPartitions: int(r.u32()), HashVersion: int(r.u32())}
	return d, r.end()
}

// EncodeFence encodes a conversation's fencing memory, without its name.
func EncodeFence(f *mailbox.FenceRow) []byte {
	w := newRow(16 + 16*len(f.Seen))
	w.u64(f.Base)
	w.uint(len(f.Seen))
	for _, s := range f.Seen {
		w.u64(s.Epoch)
		w.u64(uint64(s.Offset))
	}
	return w.b
}

// DecodeFence reads what EncodeFence wrote into f.
func DecodeFence(b []byte, f *mailbox.FenceRow) error {
	r := readRow("fence", b)
	f.Base = r.u64()
	if n := r.uint(len(r.b) / 16); n > 0 {
		f.Seen = make([]mailbox.FenceSeen, n)
	}
	for i := range f.Seen {
		f.Seen[i] = mailbox.FenceSeen{Epoch: r.u64(), Offset: int64(r.u64())}
	}
	return r.end()
}

// maxPartitions bounds what a commit state may name.
const maxPartitions = 1 << 20

// EncodeCommitState encodes how far outbox and store agree.
func EncodeCommitState(st *mailbox.CommitState) []byte {
	w := newRow(40 + len(st.Incarnation) + 8*(len(st.Positions)+len(st.Markers)))
	w.bytes([]byte(st.Incarnation))
	w.u64(st.Epoch)
	w.u64(st.Raising)
	for _, list := range [][]int64{st.Positions, st.Markers} {
		w.uint(len(list))
		for _, o := range list {
			w.u64(uint64(o))
		}
	}
	return w.b
}

// DecodeCommitState reads what EncodeCommitState wrote.
func DecodeCommitState(b []byte) (mailbox.CommitState, error) {
	var st mailbox.CommitState
	r := readRow("commit state", b)
	st.Incarnation = string(r.bytes())
	st.Epoch = r.u64()
	st.Raising = r.u64()
	for _, list := range []*[]int64{&st.Positions, &st.Markers} {
		if n := r.uint(min(len(r.b)/8, maxPartitions)); n > 0 {
			*list = make([]int64, n)
		}
		for i := range *list {
			(*list)[i] = int64(r.u64())
		}
	}
	return st, r.end()
}

// EncodeProgress encodes the immutable part of a dispatch's progress.
func EncodeProgress(p *mailbox.DispatchProgress) []byte {
	w := newRow(128 + 8*len(p.Manifest.Lanes) + len(p.Record))
	w.raw(p.Dispatch[:])
	w.raw(p.PayloadDigest[:])
	if p.Unexpanded {
		w.u8(1)
	} else {
		w.u8(0)
		m := &p.Manifest
		w.u8(m.EntryVersion)
		w.uint(m.ChunkSize)
		w.raw(m.Audience[:])
		w.uint(m.Entries)
		w.u8(uint8(len(m.Lanes)))
		for _, l := range m.Lanes {
			w.u8(uint8(l.Lane))
			w.uint(l.Users)
			w.uint(l.Chunks)
		}
	}
	w.u64(uint64(p.LastOffset))
	w.u64(uint64(p.LastSeen))
	w.bytes(p.Record)
	return w.b
}

// maxCount bounds the numbers of a manifest, so that sums cannot overflow and a
// damaged row cannot ask for memory.
const maxCount = 1 << 31

// DecodeProgress reads what EncodeProgress wrote into p; the seq and the marks are kept elsewhere.
func DecodeProgress(b []byte, p *mailbox.DispatchProgress) error {
	r := readRow("progress", b)
	copy(p.Dispatch[:], r.take(len(p.Dispatch)))
	copy(p.PayloadDigest[:], r.take(len(p.PayloadDigest)))
	switch r.u8() {
	case 1:
		p.Unexpanded = true
	case 0:
		m := &p.Manifest
		m.EntryVersion = r.u8()
		m.ChunkSize = r.uint(maxCount)
		copy(m.Audience[:], r.take(len(m.Audience)))
		m.Entries = r.uint(maxCount)
		if n := int(r.u8()); n > mailbox.LaneCount {
			r.bad = true
		} else if n > 0 {
			m.Lanes = make([]mailbox.LaneChunks, n)
		}
		for i := range m.Lanes {
			m.Lanes[i] = mailbox.LaneChunks{Lane: mailbox.Lane(r.u8()), Users: r.uint(maxCount), Chunks: r.uint(1 << 24)}
		}
	default:
		r.bad = true
	}
	p.LastOffset = int64(r.u64())
	p.LastSeen = int64(r.u64())
	p.Record = r.bytes()
	return r.end()
}

// MarksSize is the length of a set's encoding: whole bytes without zeros at the
// end.
func MarksSize(s mailbox.ChunkSet) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return 8*i + (bits.Len64(s[i])+7)/8
		}
	}
	return 0
}

// AppendMarks appends a set's encoding.
func AppendMarks(b []byte, s mailbox.ChunkSet) []byte {
	for i := range MarksSize(s) {
		b = append(b, byte(s[i/8]>>(8*(i%8))))
	}
	return b
}

// DecodeMarks reads a set of n chunks; a bit beyond them is corrupt.
func DecodeMarks(b []byte, n int) (mailbox.ChunkSet, error) {
	if len(b) > (n+7)/8 || n%8 != 0 && len(b) == (n+7)/8 && b[len(b)-1]>>(n%8) != 0 {
		return nil, fmt.Errorf("%w: chunk marks beyond the manifest's %d chunks", mailbox.ErrCorrupt, n)
	}
	s := mailbox.NewChunkSet(n)
	for i, v := range b {
		s[i/8] |= uint64(v) << (i % 8 * 8)
	}
	return s, nil
}

// EncodeHead encodes a conversation head: its revision, then its bytes.
func EncodeHead(revision uint64, data []byte) []byte {
	w := newRow(8 + len(data))
	w.u64(revision)
	w.raw(data)
	return w.b
}

// DecodeHead reads what EncodeHead wrote. data is a part of b.
func DecodeHead(b []byte) (data []byte, revision uint64, err error) {
	r := readRow("head", b)
	revision = r.u64()
	data = r.take(len(r.b))
	return data, revision, r.end()
}
