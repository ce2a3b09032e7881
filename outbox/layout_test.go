package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

func TestTheProbeIsARecordThatEveryReaderPassesOver(t *testing.T) {
	b, err := probe()
	require.NoError(t, err)
	a, err := records.DecodeAnswer(b)
	require.NoError(t, err)
	require.Zero(t, a.GetCommitEpoch(), "a recovery makes nothing of it")
}

func layout(switched bool, topics ...Topic) Layout {
	return Layout{Version: layoutVersion, Topics: topics, Switched: switched}
}

func TestWhichTopicSettingsUse(t *testing.T) {
	one, eight := Topic{Name: "x.outbox", Partitions: 1, State: Open}, Topic{Name: "x.outbox.2", Partitions: 8, State: Open}
	var none Layout
	u, err := none.Use("x", 64)
	require.NoError(t, err)
	require.Equal(t, Use{Topic: "x.outbox", Partitions: 64, First: 64}, u)

	begun := layout(false, one, eight)
	u, err = begun.Use("x", 1)
	require.NoError(t, err)
	require.Equal(t, Use{Topic: "x.outbox", Partitions: 1, First: 1, Earlier: []Topic{}}, u, "nobody has switched yet")
	u, err = begun.Use("x", 8)
	require.NoError(t, err)
	require.Equal(t, Use{Generation: 1, Topic: "x.outbox.2", Partitions: 8, First: 1, Earlier: []Topic{one}, Switches: true}, u)
	require.Equal(t, []int{1}, u.EarlierPartitions())
	_, err = begun.Use("x", 2)
	require.ErrorIs(t, err, mailbox.ErrDeploymentMismatch)

	switched := layout(true, one, eight)
	u, err = switched.Use("x", 8)
	require.NoError(t, err)
	require.False(t, u.Switches)
	_, err = switched.Use("x", 1)
	require.ErrorIs(t, err, mailbox.ErrDeploymentMismatch, "its records would come behind those of the new topic")
}

func TestALayoutThatIsNoneIsCorrupt(t *testing.T) {
	good := layout(true, Topic{Name: "a", Partitions: 1, State: Drained, Ends: []int64{4}, SealedMs: 1}, Topic{Name: "b", Partitions: 2, State: Sealed, Ends: []int64{4, 0}}, Topic{Name: "c", Partitions: 4, State: Open})
	b, err := good.Encode()
	require.NoError(t, err)
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, good, got)
	for name, f := range map[string]func(l *Layout){
		"one topic":              func(l *Layout) { l.Topics = l.Topics[:1] },
		"no name":                func(l *Layout) { l.Topics[0].Name = "" },
		"no more partitions":     func(l *Layout) { l.Topics[2].Partitions = 2 },
		"an unknown state":       func(l *Layout) { l.Topics[0].State = "gone" },
		"an early one open":      func(l *Layout) { l.Topics[0].State, l.Topics[0].Ends = Open, nil },
		"an early one sealed":    func(l *Layout) { l.Topics[0].State = Sealed },
		"the last one sealed":    func(l *Layout) { l.Topics[2].State = Sealed },
		"ends missing":           func(l *Layout) { l.Topics[1].Ends = l.Topics[1].Ends[:1] },
		"ends of an open one":    func(l *Layout) { l.Topics[2].Ends = []int64{0, 0, 0, 0} },
		"an end below 0":         func(l *Layout) { l.Topics[1].Ends[1] = -1 },
		"sealed before a switch": func(l *Layout) { l.Switched = false },
	} {
		bad, err := Decode(b)
		require.NoError(t, err)
		f(&bad)
		raw, err := bad.Encode()
		require.NoError(t, err)
		_, err = Decode(raw)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, name)
	}
	for _, s := range []string{"x", "{}", string(b) + "{}", `{"version":1,"topics":[],"more":1}`} {
		_, err := Decode([]byte(s))
		require.ErrorIs(t, err, mailbox.ErrCorrupt, s)
	}
}

func FuzzDecode(f *testing.F) {
	l := layout(true, Topic{Name: "a", Partitions: 1, State: Sealed, Ends: []int64{4}, SealedMs: 1}, Topic{Name: "b", Partitions: 2, State: Open})
	b, err := l.Encode()
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		l, err := Decode(b)
		if err != nil {
			return
		}
		for _, n := range []int{1, 2, 8} {
			_, _ = l.Use("x", n)
		}
	})
}
