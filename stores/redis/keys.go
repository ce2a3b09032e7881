package redis

import (
	"fmt"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// key joins the parts of a key, each escaped, behind the store's prefix.
func (s *Store) key(parts ...string) string {
	n := len(s.opts.Prefix) + len(parts)
	for _, p := range parts {
		n += len(p)
	}
	b := append(make([]byte, 0, n), s.opts.Prefix...)
	for i, p := range parts {
		if i > 0 {
			b = append(b, ':')
		}
		b = appendEscaped(b, p)
	}
	return string(b)
}

const upperHex = "0123456789ABCDEF"

// appendEscaped writes what may be part of a key as it is, and every other byte
// as %XX. What separates keys (':'), chooses a cluster's slot ('{', '}'), escapes
// ('%') or is a pattern to SCAN and ACLs ('*', '?', '[', ']', '\') never comes
// from an id, so that no id reaches another's key.
func appendEscaped(b []byte, id string) []byte {
	for i := range len(id) {
		c := id[i]
		if plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return b
}

// plain bytes need no escape: letters, digits, a few marks, and all of UTF-8
// beyond ASCII.
func plain(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 0x80:
		return true
	}
	return c == '-' || c == '_' || c == '.' || c == '@'
}

// unescape reads what appendEscaped wrote, and nothing else.
func unescape(part string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		c := part[i]
		if c == '%' {
			if i+2 >= len(part) {
				return "", fmt.Errorf("%w: key part %q ends within an escape", mailbox.ErrCorrupt, part)
			}
			hi, lo := strings.IndexByte(upperHex, part[i+1]), strings.IndexByte(upperHex, part[i+2])
			if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
				return "", fmt.Errorf("%w: key part %q has an escape that is never written", mailbox.ErrCorrupt, part)
			}
			b.WriteByte(byte(hi<<4 | lo))
			i += 2
			continue
		}
		if !plain(c) {
			return "", fmt.Errorf("%w: key part %q has a byte that is always escaped", mailbox.ErrCorrupt, part)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// metaKey is the key of a mailbox that scripts derive its other keys from.
func (s *Store) metaKey(u mailbox.User) string { return s.key("mbmeta", u.Tenant, u.ID) }

// seqText is how seqs are stored and passed to scripts: as text they are in the
// order of their numbers.
func seqText(seq mailbox.Seq) string {
	var b [16]byte
	for i := range b {
		b[i] = "0123456789abcdef"[uint64(seq)>>(60-4*i)&15]
	}
	return string(b[:])
}

// parseSeq reads a seq; empty is none.
func parseSeq(text string) (mailbox.Seq, error) {
	if text == "" {
		return 0, nil
	}
	var n uint64
	for i := range len(text) {
		d := strings.IndexByte("0123456789abcdef", text[i])
		if d < 0 || len(text) != 16 {
			return 0, fmt.Errorf("%w: %q is not a seq", mailbox.ErrCorrupt, text)
		}
		n = n<<4 | uint64(d)
	}
	return mailbox.Seq(n), nil
}
