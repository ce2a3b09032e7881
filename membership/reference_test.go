package membership

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

var errNotRoaring = errors.New("not a portable Roaring bitmap")

// reference reads Roaring's portable format as its specification says and trusts
// nothing: the second opinion of the fuzz targets. It refuses what does not
// describe an ascending set, and sets of more than most members.
func reference(b []byte, most int) ([]uint32, error) {
	r := reader{b: b}
	cookie := r.u32()
	var containers int
	var runs []byte
	switch {
	case cookie&0xffff == 12347:
		containers = int(cookie>>16) + 1
		runs = r.take((containers + 7) / 8)
	case cookie == 12346:
		n := r.u32()
		if n > 1<<16 {
			return nil, errNotRoaring
		}
		containers = int(n)
	default:
		return nil, errNotRoaring
	}
	header := r.take(4 * containers)
	if runs == nil || containers >= 4 {
		r.take(4 * containers) // offsets: redundant, and not looked at
	}
	if r.bad {
		return nil, errNotRoaring
	}
	var out []uint32
	for i := range containers {
		key := uint32(binary.LittleEndian.Uint16(header[4*i:]))
		want := int(binary.LittleEndian.Uint16(header[4*i+2:])) + 1
		if len(out)+want > most {
			return nil, errNotRoaring
		}
		var low []uint32
		switch {
		case runs != nil && runs[i/8]&(1<<(i%8)) != 0:
			for range r.u16() {
				start, length := r.u16(), r.u16()
				for v := start; v <= start+length && len(low) <= want; v++ {
					low = append(low, v)
				}
			}
		case want > 4096:
			for w, word := range r.words(1024) {
				for ; word != 0; word &= word - 1 {
					low = append(low, uint32(64*w+bits.TrailingZeros64(word)))
				}
			}
		default:
			for range want {
				low = append(low, r.u16())
			}
		}
		if r.bad || len(low) != want {
			return nil, errNotRoaring
		}
		for _, v := range low {
			slot := key<<16 | v
			if v > 0xffff || (len(out) > 0 && slot <= out[len(out)-1]) {
				return nil, errNotRoaring
			}
			out = append(out, slot)
		}
	}
	if len(r.b) > 0 || len(out) == 0 {
		return nil, errNotRoaring
	}
	return out, nil
}

// reader takes from the front; what is not there reads as zero and is bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u16() uint32 { return uint32(binary.LittleEndian.Uint16(r.take(2))) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }

func (r *reader) words(n int) []uint64 {
	raw, out := r.take(8*n), make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return out
}
