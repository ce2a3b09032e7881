package demo

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
)

// TestAnyTraceComesToTheOraclesTotals replays a room in which people write before
// anybody joined and after everybody left, are named twice, and end with what
// changes nothing. The totals are what testdata/oracle.py says of it.
func TestAnyTraceComesToTheOraclesTotals(t *testing.T) {
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen, c.OutboxPartitions = t.TempDir(), "127.0.0.1:0", 4
	for _, resumedAt := range []int{0, 16} {
		r, err := Run(t.Context(), Options{Config: &c, Trace: filepath.Join("testdata", "odd.jsonl"), Out: io.Discard, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.Equal(t, resumedAt, r.ResumedAt)
		require.Equal(t, 13, r.EventsDispatched)
		require.Equal(t, 2, r.Users)
		require.Equal(t, 2, r.PeakMembers)
		require.Equal(t, 20, r.Entries)
		require.Equal(t, map[string]int{"CONTROL": 2, "MEMBERSHIP": 8, "MENTION": 6, "MESSAGE": 4}, r.ByType)
		require.Equal(t, "9dd415d0800bfb79b099cb3222f4c024551e22617bb5e48915aec1ed0131485c", r.SHA256)
	}
}

func TestATraceThatCannotBeReplayedIsRefusedBeforeAnythingStarts(t *testing.T) {
	for name, trace := range map[string]string{
		"nothing":      "\n",
		"not JSON":     "# Laneway\n",
		"two rooms":    `{"room":"a","type":"join","user":"u"}` + "\n" + `{"room":"b","type":"join","user":"u"}`,
		"unknown type": `{"room":"a","type":"poll","user":"u","msg":"m"}`,
		"no message":   `{"room":"a","type":"message","user":"u"}`,
		"an empty id":  `{"room":"a","type":"message","user":"u","msg":"m","mentions":[""]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "trace.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(trace), 0o600))
			_, err := Run(t.Context(), Options{Trace: path, Out: io.Discard}) // without settings, nothing can start
			require.ErrorAs(t, err, new(InputError))
			require.ErrorContains(t, err, path)
		})
	}
}

func TestMentionsAreCutToWhatAnEventCanName(t *testing.T) {
	e := Event{Mentions: []string{"a", "b", "a", "a"}}
	require.Equal(t, [][]string{{"a", "b"}, {"a"}, {"a"}}, e.mentions())
	e = Event{}
	for i := range 600 {
		e.Mentions = append(e.Mentions, string(rune('a'+i)))
	}
	lists := e.mentions()
	require.Len(t, lists, 2)
	require.Len(t, lists[0], 512)
	require.Len(t, lists[1], 88)
}
