package records

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

func answer() *logv1.AnswerRecord {
	return &logv1.AnswerRecord{
		SchemaVersion: 1, TenantId: "acme", ConversationId: "g", SenderId: "admin", ClientMessageId: "j1",
		RequestDigest: make([]byte, 32), Generation: 1, MembershipVersion: 3, MemberCount: 4, CommitEpoch: 2,
	}
}

func TestCommitEpochRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := CommitEpoch(rapid.Uint64Min(1).Draw(t, "epoch"))
		got, err := DecodeCommitEpoch(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, got)
	})
}

func TestCommitEpochRefusals(t *testing.T) {
	_, err := DecodeCommitEpoch(CommitEpoch(0).Encode())
	require.ErrorIs(t, err, ErrInvalid)
	_, err = DecodeCommitEpoch([]byte{0x08, 0x02, 0x10, 0x01})
	require.ErrorIs(t, err, ErrUnknownVersion)
	_, err = DecodeCommitEpoch([]byte{0xff, 0xff})
	require.ErrorIs(t, err, ErrUndecodable)
	_, err = DecodeCommitEpoch(make([]byte, maxEpochBytes+1))
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestAnswerRoundTripAndRefusals(t *testing.T) {
	b, err := EncodeAnswer(answer())
	require.NoError(t, err)
	got, err := DecodeAnswer(b)
	require.NoError(t, err)
	require.True(t, proto.Equal(answer(), got))
	for name, c := range map[string]struct {
		change func(*logv1.AnswerRecord)
		want   error
	}{
		"version":           {func(r *logv1.AnswerRecord) { r.SchemaVersion = 2 }, ErrUnknownVersion},
		"tenant":            {func(r *logv1.AnswerRecord) { r.TenantId = "" }, ErrInvalid},
		"client message id": {func(r *logv1.AnswerRecord) { r.ClientMessageId = "a\nb" }, ErrInvalid},
		"digest":            {func(r *logv1.AnswerRecord) { r.RequestDigest = nil }, ErrInvalid},
	} {
		r := answer()
		c.change(r)
		_, err := EncodeAnswer(r)
		require.ErrorIs(t, err, c.want, name)
		b, err := proto.Marshal(r)
		require.NoError(t, err)
		_, err = DecodeAnswer(b)
		require.ErrorIs(t, err, c.want, name)
	}
	_, err = DecodeAnswer(make([]byte, maxAnswerBytes+1))
	require.ErrorIs(t, err, ErrTooLarge)
}

// logItem is a record of a partition: a marker, or a message of an epoch.
type logItem struct {
	marker bool
	epoch  uint64
}

// stale is what design 8.4 says, word by word.
func stale(log []logItem, at int) bool {
	largest := uint64(0)
	for _, i := range log[:at] {
		if i.marker {
			largest = max(largest, i.epoch)
		}
	}
	return log[at].epoch > 0 && log[at].epoch < largest
}

// A reader that begins anywhere at or above the last position it kept, with the
// markers it had kept then, says of every record what the first pass said.
func TestReplayCountsTheSameRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) logItem {
			return logItem{rapid.IntRange(0, 3).Draw(t, "kind") == 0, rapid.Uint64Range(1, 9).Draw(t, "epoch") * rapid.Uint64Range(0, 1).Draw(t, "own")}
		}), 1, 60).Draw(t, "log")
		var kept CommitEpochs
		at := 0
		for range rapid.IntRange(1, 5).Draw(t, "passes") {
			c := NewCommitEpochs(kept.Marks())
			from := rapid.IntRange(0, at).Draw(t, "from")
			to := rapid.IntRange(from, len(log)).Draw(t, "to")
			for o := from; o < to; o++ {
				if i := log[o]; i.marker && i.epoch > 0 {
					c.Mark(CommitEpoch(i.epoch), int64(o))
				} else if !i.marker {
					require.Equal(t, stale(log, o), c.Stale(i.epoch, int64(o)), "offset %d", o)
				}
			}
			if to >= at {
				kept, at = c, to
			}
		}
	})
}

// A record that was quarantined and is published again is not dropped for the
// epoch that it had.
func TestSplitCommitEpoch(t *testing.T) {
	r := groupOutbox()
	r.CommitEpoch, r.RequestDigest = 7, make([]byte, 32)
	b, err := EncodeOutbox(r, testShards)
	require.NoError(t, err)
	epoch, rest := SplitCommitEpoch(b)
	require.Equal(t, uint64(7), epoch)
	got, err := DecodeOutbox(rest, testShards, testNow)
	require.NoError(t, err)
	r.CommitEpoch = 0
	require.True(t, proto.Equal(r, got))
	epoch, again := SplitCommitEpoch(rest)
	require.Zero(t, epoch)
	require.Equal(t, rest, again)
	for _, junk := range [][]byte{nil, {0xff}, []byte("not a record at all")} {
		epoch, same := SplitCommitEpoch(junk)
		require.Zero(t, epoch)
		require.Equal(t, junk, same)
	}
}

func TestMarksAreBounded(t *testing.T) {
	var c CommitEpochs
	for i := range 3 * maxMarks {
		require.True(t, c.Mark(CommitEpoch(i+1), int64(i)))
		require.False(t, c.Mark(CommitEpoch(i+1), int64(i)), "met again")
		require.False(t, c.Mark(CommitEpoch(i), int64(i+1)), "a smaller one")
	}
	require.Len(t, c.Marks(), maxMarks)
	require.Equal(t, uint64(3*maxMarks), c.At(1<<40))
	require.Equal(t, uint64(2*maxMarks+1), c.At(2*maxMarks+1))
}

func TestEveryKindOfOutboxRecordHasItsHeader(t *testing.T) {
	for _, k := range []OutboxKind{OutboxCommitEpoch, OutboxAnswer} {
		got, ok := OutboxKindOf(k.Header())
		require.True(t, ok)
		require.Equal(t, k, got)
	}
	_, ok := OutboxKindOf("traceparent")
	require.False(t, ok)
	require.Empty(t, OutboxMessage.Header())
}

func FuzzDecodeCommitEpoch(f *testing.F) {
	f.Add(CommitEpoch(3).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeCommitEpoch(b)
		if err != nil {
			_, ok := ReasonOf(err)
			require.True(t, ok)
			return
		}
		again, err := DecodeCommitEpoch(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	b, err := EncodeAnswer(answer())
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeAnswer(b)
		if err != nil {
			_, ok := ReasonOf(err)
			require.True(t, ok)
			return
		}
		_, err = EncodeAnswer(r)
		require.NoError(t, err)
	})
}

func FuzzSplitCommitEpoch(f *testing.F) {
	r := singleOutbox()
	r.CommitEpoch = 3
	b, err := EncodeOutbox(r, testShards)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, rest := SplitCommitEpoch(b)
		epoch, again := SplitCommitEpoch(rest)
		require.Zero(t, epoch)
		require.Equal(t, rest, again)
	})
}
