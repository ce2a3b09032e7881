package pebble

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

func genID(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("ab:{}~é\u00ff\U0010ffff ")), 1, 6, 30).Draw(t, label)
}

func genUser(t *rapid.T) mailbox.User {
	return mailbox.User{Tenant: genID(t, "tenant"), ID: genID(t, "user")}
}

// The properties that Pebble asks of a comparer with a prefix, for entry keys
// and for what it makes of them (shortened keys).
func TestComparerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := func() []byte {
			k := mailboxPrefix(mailbox.Day(rapid.Int32Range(-2, 2).Draw(t, "day")), genUser(t))
			k = append(k, rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 10).Draw(t, "suffix")...)
			return k[:rapid.IntRange(min(5, len(k)), len(k)).Draw(t, "length")]
		}
		a, b := key(), key()
		pa, pb := a[:splitKey(a)], b[:splitKey(b)]
		require.Equal(t, len(pa), splitKey(pa), "a prefix is its own prefix")
		cmp := comparer.Compare(a, b)
		if p := bytes.Compare(pa, pb); p != 0 {
			require.Equal(t, p, cmp, "prefixes order before suffixes")
		} else {
			require.Equal(t, comparer.ComparePointSuffixes(a[len(pa):], b[len(pb):]), cmp)
		}
		if cmp < 0 {
			s := comparer.Separator(nil, a, b)
			require.LessOrEqual(t, comparer.Compare(a, s), 0)
			require.Negative(t, comparer.Compare(s, b))
		}
		require.LessOrEqual(t, comparer.Compare(a, comparer.Successor(nil, a)), 0)
		next := comparer.ImmediateSuccessor(nil, pa)
		require.Equal(t, len(next), splitKey(next))
		require.Positive(t, comparer.Compare(next, pa))
		if comparer.Compare(pb, pa) > 0 {
			require.LessOrEqual(t, comparer.Compare(next, pb), 0, "nothing lies between a prefix and its successor")
		}
	})
}

func TestNoIDReachesAnothersKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, v := genUser(t), genUser(t)
		a, b := mailboxPrefix(7, u), mailboxPrefix(7, v)
		require.Equal(t, u == v, bytes.HasPrefix(a, b))
		got, ok := mailboxOfKey(append(a, 0, 0, 0, 0, 0, 0, 0, 1, 0))
		require.True(t, ok)
		require.Equal(t, u, got)
		c, ok := conversationOfKey(conversationKey(tablePending, mailbox.Conversation(u)))
		require.True(t, ok)
		require.Equal(t, mailbox.Conversation(u), c)
		texts := rapid.SliceOfN(rapid.StringOf(rapid.RuneFrom([]rune("a\x00\x01"))), 4, 4).Draw(t, "texts")
		conv := mailbox.Conversation{Tenant: "t", ID: "c"}
		require.Equal(t, texts[0] == texts[2] && texts[1] == texts[3],
			bytes.Equal(committedKey(conv, texts[0], texts[1]), committedKey(conv, texts[2], texts[3])))
	})
}

func TestDaysSortAsNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := mailbox.Day(rapid.Int32().Draw(t, "a")), mailbox.Day(rapid.Int32().Draw(t, "b"))
		require.Equal(t, a < b, bytes.Compare(appendDayKey(nil, a), appendDayKey(nil, b)) < 0)
		require.Equal(t, a, dayOfBits(dayBits(a)))
	})
}

// Rows come from a disk: no bytes make a decoder panic, or ask for more memory
// than they are long.
func FuzzRows(f *testing.F) {
	p := mailbox.DispatchProgress{Manifest: mailbox.Manifest{Lanes: []mailbox.LaneChunks{{Lane: 3, Users: 9, Chunks: 2}}}, Record: []byte("r")}
	f.Add(rows.EncodeProgress(&p))
	f.Add(rows.EncodeFence(&mailbox.FenceRow{Base: 1, Seen: []mailbox.FenceSeen{{Epoch: 2, Offset: 3}}}))
	f.Add(rows.EncodeOwnership(&mailbox.ShardState{Epoch: 2, Owner: "n", Boundaries: []mailbox.Boundary{{Epoch: 1, Offset: 2}}}))
	f.Add(rows.EncodeWatermarks(&mailbox.Watermarks{}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p mailbox.DispatchProgress
		if rows.DecodeProgress(b, &p) == nil {
			n := p.Manifest.Chunks()
			_, _ = rows.DecodeMarks(b, n%1000)
			var again mailbox.DispatchProgress
			require.NoError(t, rows.DecodeProgress(rows.EncodeProgress(&p), &again))
			require.True(t, p.Manifest.Equal(&again.Manifest))
		}
		var st mailbox.ShardState
		_ = rows.DecodeOwnership(b, &st)
		var w mailbox.Watermarks
		_ = rows.DecodeWatermarks(b, &w)
		var fence mailbox.FenceRow
		_ = rows.DecodeFence(b, &fence)
		_, _ = rows.DecodeDeployment(b)
		var m laneMax
		_ = m.decode(b)
		_, _ = entrySeq(b)
		_, _ = mailboxOfKey(b)
		_, _ = conversationOfKey(b)
	})
}

func TestFoldsDoNotDependOnOrderOrRepetition(t *testing.T) {
	for _, key := range [][]byte{boundsKey(mailbox.User{Tenant: "t", ID: "u"}), dayMaxKey(nil, 1, 2), appendProgressKey(nil, 1, 2, progressPartSeen), generationKey(tableLatestSlot, mailbox.Group{Tenant: "t", ID: "g"}, 1)} {
		rapid.Check(t, func(t *rapid.T) {
			operand := func() []byte {
				if key[0] == tableDayMax {
					var m laneMax
					for range rapid.IntRange(0, 4).Draw(t, "lanes") {
						m.raise(mailbox.Lane(rapid.IntRange(0, 63).Draw(t, "lane")), mailbox.Seq(rapid.Uint64Range(1, 9).Draw(t, "seq")))
					}
					return m.append(nil)
				}
				return rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "operand")
			}
			ops := [][]byte{operand(), operand(), operand()}
			merged := func(order ...int) []byte {
				m, err := merger.Merge(key, ops[order[0]])
				require.NoError(t, err)
				for _, i := range order[1:] {
					require.NoError(t, m.MergeOlder(ops[i]))
				}
				v, _, err := m.Finish(true)
				require.NoError(t, err)
				return v
			}
			want := merged(0, 1, 2)
			for _, order := range [][]int{{2, 1, 0}, {1, 0, 2}, {0, 1, 2, 0, 1, 2}} {
				require.Equal(t, want, merged(order...))
			}
		})
	}
}
