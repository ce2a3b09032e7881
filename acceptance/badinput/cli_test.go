package badinput_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
)

// TestBadIDsOnTheCommandLine: each says what is wrong with which id, and none is
// taken for a server that is none.
func TestBadIDsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	server := []string{"--server", n.URL()}
	for what, tt := range map[string]struct{ id, says string }{
		"empty":         {"", "is empty"},
		"newline":       {"a\nb", "control character (U+000A)"},
		"escape":        {"a\x1b[31mb", "control character (U+001B)"},
		"129 bytes":     {strings.Repeat("x", 129), "has 129 bytes, at most 128 are allowed"},
		"invalid UTF-8": {"a\xff\xfe", "UTF-8"},
	} {
		for name, args := range map[string][]string{
			"tenant":       {"send", "--tenant", tt.id, "--from", "ann", "--to", "bob", "--body", "x"},
			"from":         {"send", "--from", tt.id, "--to", "bob", "--conversation", "c", "--body", "x"},
			"to":           {"send", "--from", "ann", "--to", tt.id, "--conversation", "c", "--body", "x"},
			"group":        {"send", "--from", "ann", "--group", tt.id, "--body", "x"},
			"mention":      {"send", "--from", "ann", "--to", "bob", "--mention", tt.id, "--body", "x"},
			"message id":   {"send", "--from", "ann", "--to", "bob", "--message-id", tt.id, "--body", "x"},
			"client id":    {"send", "--from", "ann", "--to", "bob", "--client-message-id", tt.id, "--body", "x"},
			"pull":         {"pull", "--user", tt.id},
			"watch":        {"watch", "--user", tt.id},
			"join group":   {"group", "join", tt.id, "ann"},
			"join user":    {"group", "join", "g", "ann", tt.id},
			"leave":        {"group", "leave", "g", tt.id},
			"show":         {"group", "show", tt.id},
			"import group": {"group", "import", "-", "--group", tt.id},
		} {
			if what != "empty" && what != "invalid UTF-8" && name != "from" && name != "client id" && name != "join user" {
				continue // the API's tests have the rest: these go through the same calls
			}
			if tt.id == "" && (name == "tenant" || strings.HasSuffix(name, "id") || name == "mention") {
				continue // not given
			}
			r := laneway(t, "ann\n", append(args, server...)...)
			require.Contains(t, []int{2, 4}, r.code, "%s: %s: %s", name, what, r.err)
			require.Contains(t, r.err, tt.says, "%s: %s", name, what)
			require.NotContains(t, r.err, "something else listens there", "%s: %s", name, what)
			require.NotContains(t, r.err, "\x1b", "%s: %s: an id must not reach the terminal as it is", name, what)
		}
	}
	_, err := n.Group(bounded(t), "default", "g")
	require.Equal(t, reason.GroupUnknown, client.ReasonOf(err), "nothing was applied")
	// What is legal, however odd, goes through.
	r := laneway(t, "", append([]string{"send", "--from", "a:b", "--to", "{c}", "--body", "-"}, server...)...)
	require.Zero(t, r.code, r.err)
	require.Len(t, entries(t, n.Client, "default", "{c}", 1), 1)
}

// TestBadImportFiles: everything wrong is named by its line, nothing is applied,
// and the exit code says that it is the input's fault.
func TestBadImportFiles(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	junk := make([]byte, 64<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	dir := t.TempDir()
	run := func(content string) result {
		file := filepath.Join(dir, "users.txt")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		return laneway(t, "", "group", "import", file, "--group", "g", "--server", n.URL())
	}
	for name, tt := range map[string]struct {
		content string
		says    []string
	}{
		"duplicates and bad lines": {"ann\nbob\nann\nb\x01d\n trailing \n" + strings.Repeat("x", 129) + "\nzoe\nann\n", []string{
			"users.txt:3: repeats line 1", "users.txt:4: invalid id", "users.txt:5: has spaces", "users.txt:6: invalid id: user id has 129 bytes",
			"users.txt:8: repeats line 1", "5 of the lines of", "nothing was applied: correct them and import again",
		}},
		"a huge line":          {"ann\n" + strings.Repeat("y", 3<<20) + "\nann\n", []string{"users.txt:2: the line has 3145728 bytes, a user id at most 128", "users.txt:3: repeats line 1"}},
		"only a huge line":     {strings.Repeat("y", 3<<20), []string{"users.txt:1: the line has 3145728 bytes, a user id at most 128"}},
		"binary":               {string(junk), []string{"users.txt:1: ", "UTF-8", "… and ", "nothing was applied"}},
		"NULs":                 {strings.Repeat("\x00", 5000), []string{"users.txt:1: the line has 5000 bytes"}},
		"UTF-16":               {"\xff\xfea\x00n\x00n\x00\n\x00", []string{"users.txt:1: invalid id", "UTF-8"}},
		"empty":                {"", []string{"names no users"}},
		"blank lines":          {"\n\r\n  \n# nobody\n", []string{"names no users"}},
		"CR as the only break": {"ann\rbob\rzoe\n", []string{"users.txt:1: invalid id", "U+000D"}},
	} {
		r := run(tt.content)
		require.Equal(t, 2, r.code, "%s: %s", name, r.err)
		for _, s := range tt.says {
			require.Contains(t, r.err, s, name)
		}
		require.Less(t, len(r.err), 8000, name)
		require.NotContains(t, r.err, "\x01", name)
	}
	r := laneway(t, "", "group", "import", dir, "--group", "g", "--server", n.URL())
	require.Equal(t, 2, r.code, "a directory: %s", r.err)
	_, err := n.Group(bounded(t), "default", "g")
	require.Equal(t, reason.GroupUnknown, client.ReasonOf(err), "nothing was applied")

	// CRLF and a byte order mark are what an editor leaves, not mistakes.
	r = run("\ufeffann\r\nbob\r\n\r\n# staff\r\nzoe")
	require.Zero(t, r.code, r.err)
	g, err := n.Group(bounded(t), "default", "g")
	require.NoError(t, err)
	require.Equal(t, uint32(3), g.MemberCount)
	page, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "default", UserId: "ann"})
	require.NoError(t, err)
	require.LessOrEqual(t, len(page.Entries), 1)
	entries(t, n.Client, "default", "zoe", 1)
}
