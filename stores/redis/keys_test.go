package redis

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func escaped(id string) string { return string(appendEscaped(nil, id)) }

func TestEscapedIdsNeverReachAnotherKey(t *testing.T) {
	s := &Store{opts: Options{Prefix: "p:"}}
	ids := []string{"a", "a:b", "a%3Ab", "a%", "%3A", ":", "{", "}", "{a}", "a{b}", "a*", "a?", "a[b]", `a\b`, "a b", "é", "\u00ff", "\U0010ffff", "a:e1", "a:e1:20000", "", "\x00"}
	seen := map[string][2]string{}
	for _, tenant := range ids {
		for _, id := range ids {
			k := s.metaKey(mailbox.User{Tenant: tenant, ID: id})
			require.NotContains(t, seen, k, "%q %q", tenant, id)
			seen[k] = [2]string{tenant, id}
			require.True(t, strings.HasPrefix(k, "p:mbmeta:"))
			require.Equal(t, 2, strings.Count(k[2:], ":"), k)
			require.NotContainsf(t, k, "{", "%q %q", tenant, id)
		}
	}
}

func TestKeysLookAsDesigned(t *testing.T) {
	s := &Store{}
	require.Equal(t, "mbmeta:tenant-1:user.a_b@c", s.metaKey(mailbox.User{Tenant: "tenant-1", ID: "user.a_b@c"}))
	require.Equal(t, "mbmeta:%7Bx%7D:a%3Ab%25ü", s.metaKey(mailbox.User{Tenant: "{x}", ID: "a:b%ü"}))
	require.Equal(t, "lanedays:7:63", s.laneDaysKey(7, 63))
}

// FuzzEscape: what was escaped is read back, holds no separator, and nothing else
// is read at all.
func FuzzEscape(f *testing.F) {
	for _, id := range []string{"", "user-1", "a:b", "%3A", "{x}", "ü:\u00ff", "\x00\x1f", "*?[]\\", "%", "%G0", "%2", strings.Repeat(":", 128)} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		e := escaped(id)
		require.NotContains(t, e, ":")
		for _, c := range []string{"{", "}", "*", "?", "[", "]", `\`} {
			require.NotContains(t, e, c)
		}
		back, err := unescape(e)
		require.NoError(t, err)
		require.Equal(t, id, back)
		if read, err := unescape(id); err == nil {
			require.Equal(t, id, escaped(read), "one text of a key for each id")
		} else {
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
		}
	})
}

func TestSeqsCompareAsText(t *testing.T) {
	seqs := []mailbox.Seq{0, 1, 9, 10, 255, 256, 1<<48 - 1, 1 << 48, 9 << 48, 10 << 48, math.MaxUint64}
	for i, a := range seqs {
		text := seqText(a)
		require.Len(t, text, 16)
		got, err := parseSeq(text)
		require.NoError(t, err)
		require.Equal(t, a, got)
		for j, b := range seqs {
			require.Equal(t, i < j, text < seqText(b))
		}
	}
	for _, bad := range []string{"0", "000000000000000", "000000000000000G", "000000000000000A", "00000000000000000"} {
		_, err := parseSeq(bad)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, bad)
	}
}
