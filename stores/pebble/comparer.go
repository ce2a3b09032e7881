package pebble

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// comparer is byte order with a prefix: the mailbox of an entry's key, the
// whole key elsewhere. The bloom filters therefore answer "has this user
// anything on that day" without reading the day. Splitting looks at the start of
// a key, so that Pebble's synthetic prefixes, which cut it off, cannot be used.
var comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "laneway.mailbox.v1"
	c.Split = splitKey
	c.ImmediateSuccessor = func(dst, prefix []byte) []byte {
		dst = append(dst, prefix...)
		if _, ok := mailboxEnd(prefix); ok {
			// All keys of a complete mailbox prefix lie below it with its last byte,
			// the terminator, raised.
			dst[len(dst)-1] = idEnd + 1
			return dst
		}
		return append(dst, 0)
	}
	return &c
}()

func splitKey(key []byte) int {
	if n, ok := mailboxEnd(key); ok {
		return n
	}
	return len(key)
}

// mailboxEnd returns the length of a complete mailbox prefix at the start of
// key. Pebble also asks about shortened keys, which have none.
func mailboxEnd(key []byte) (int, bool) {
	if len(key) < entryKeyHead || key[0] != tableEntry {
		return 0, false
	}
	n := entryKeyHead
	for range 2 {
		i := bytes.IndexByte(key[n:], idEnd)
		if i < 0 {
			return 0, false
		}
		n += i + 1
	}
	return n, true
}
