// Package docs_test keeps the documentation true where a machine can: every
// setting, metric, reason and quarantine reason is described, every command line
// in README and docs parses, and every file that they name exists.
package docs_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

const root = ".."

// pages returns README and every page below docs, by their path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{"README.md": read(t, "README.md")}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			out[filepath.Join("docs", path)] = read(t, filepath.Join("docs", path))
		}
		return err
	}))
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(b)
}

// rows returns the cells of the table rows whose first cell is code, by it.
func rows(page string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(page) {
		inner, isRow := strings.CutPrefix(strings.TrimSpace(line), "| ")
		if !isRow {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if name, isCode := strings.CutPrefix(cells[0], "`"); isCode && strings.HasSuffix(name, "`") {
			out[strings.TrimSuffix(name, "`")] = cells
		}
	}
	return out
}

func TestEverySettingIsDocumentedWithItsDefault(t *testing.T) {
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	table := rows(read(t, "docs/configuration.md"))
	for _, s := range loaded.Settings() {
		cells, ok := table[s.Key]
		if !ok {
			t.Errorf("docs/configuration.md has no row for %s", s.Key)
			continue
		}
		if s.Key == "node" {
			continue // the host's name
		}
		got, want := strings.Trim(cells[1], "`"), s.Text()
		if d, err := time.ParseDuration(want); err == nil && got != want {
			if same, err := time.ParseDuration(got); err == nil && same == d {
				continue
			}
		}
		if want == `""` || want == "[]" {
			want = "none"
		}
		if got != want {
			t.Errorf("docs/configuration.md says that %s is %s by default, it is %s", s.Key, got, want)
		}
	}
	for key := range table {
		known := slices.ContainsFunc(loaded.Settings(), func(s config.Setting) bool { return s.Key == key })
		if !known && !strings.HasPrefix(key, "LANEWAY_") && !strings.HasSuffix(key, "/") && key != "laneway.log" {
			t.Errorf("docs/configuration.md describes %s, which is no setting", key)
		}
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	table := rows(read(t, "docs/metrics.md"))
	known := map[string]bool{}
	for _, f := range metrics.Families() {
		known[f.Name] = true
		cells, ok := table[f.Name]
		if !ok {
			t.Errorf("docs/metrics.md has no row for %s", f.Name)
			continue
		}
		if got, want := cells[1], string(f.Kind); got != want {
			t.Errorf("docs/metrics.md says that %s is a %s, it is a %s", f.Name, got, want)
		}
		if got, want := cells[2], strings.Join(f.Labels, ", "); got != want {
			t.Errorf("docs/metrics.md says that %s has the labels %q, it has %q", f.Name, got, want)
		}
	}
	for _, name := range coordinatorMetrics(t) {
		known[name] = true
		if _, ok := table[name]; !ok {
			t.Errorf("docs/metrics.md has no row for %s", name)
		}
	}
	for name := range table {
		if strings.HasSuffix(name, "_") {
			continue // a prefix
		}
		if !known[name] {
			t.Errorf("docs/metrics.md describes %s, which does not exist", name)
		}
	}
}

// collected is a registry that only remembers names.
type collected struct{ names []string }

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (c *collected) Register(m prometheus.Collector) error {
	all := make(chan *prometheus.Desc, 16)
	m.Describe(all)
	close(all)
	for d := range all {
		c.names = append(c.names, fqName.FindStringSubmatch(d.String())[1])
	}
	return nil
}

func (c *collected) MustRegister(ms ...prometheus.Collector) {
	for _, m := range ms {
		_ = c.Register(m)
	}
}

func (c *collected) Unregister(prometheus.Collector) bool { return false }

// noFences is a store that is never asked.
type noFences struct{ fanout.FenceStore }

func (noFences) Incarnation() string { return "" }

// coordinatorMetrics returns the names of what the coordinator registers itself.
func coordinatorMetrics(t *testing.T) []string {
	t.Helper()
	var c collected
	coordinator, err := fanout.NewCoordinator(fanout.Config{
		Broker: broker.ClientConfig{Brokers: []string{"127.0.0.1:1"}}, Topics: broker.NewTopics(""), Shards: 1, OutboxPartitions: 1,
		Fences: noFences{}, Snapshots: struct{ fanout.Snapshots }{}, Quarantine: (*quarantine.Producer)(nil),
		Registerer: &c,
	})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, coordinator.Run(ended)) // closes its client
	require.NotEmpty(t, c.names)
	return c.names
}

func TestEveryReasonIsDocumented(t *testing.T) {
	table := rows(read(t, "docs/api.md"))
	for _, r := range reason.All() {
		if _, ok := table[string(r)]; !ok {
			t.Errorf("docs/api.md has no row for %s", r)
		}
	}
	page := read(t, "docs/design/05-fanout.md")
	for _, r := range records.Reasons() {
		if !strings.Contains(page, "| "+string(r)+" |") {
			t.Errorf("docs/design/05-fanout.md has no row for %s", r)
		}
	}
}

// command is a command line as the documentation gives it.
type command struct{ page, line string }

var promptEnd = regexp.MustCompile(`^(\$ )?(bin/)?laneway( |$)`)

// commands returns the laneway command lines of all code blocks.
func commands(t *testing.T) []command {
	t.Helper()
	var out []command
	for page, text := range pages(t) {
		inBlock := false
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "```") {
				inBlock = !inBlock
			} else if inBlock && promptEnd.MatchString(line) {
				out = append(out, command{page, strings.TrimPrefix(line, "$ ")})
			}
		}
		require.False(t, inBlock, "%s: a code block does not end", page)
	}
	slices.SortFunc(out, func(a, b command) int { return strings.Compare(a.page+a.line, b.page+b.line) })
	return out
}

// output is what a node or a command prints and begins like a command line.
var output = regexp.MustCompile(`^laneway (at http://)|^laneway: `)

func TestEveryCommandParses(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command and starts it: not with -short")
	}
	binary := filepath.Join(t.TempDir(), "laneway")
	build, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, "../cmd/laneway").CombinedOutput()
	require.NoError(t, err, "%s", build)
	seen := map[string]bool{}
	for _, c := range commands(t) {
		if output.MatchString(c.line) || seen[c.line] {
			continue
		}
		seen[c.line] = true
		args := words(t, c.line)[1:]
		if i := slices.Index(args, ">"); i >= 0 {
			args = args[:i]
		}
		path := "laneway " + args[0]
		if args[0] == "group" {
			path += " " + args[1]
		}
		switch path {
		case "laneway send", "laneway pull", "laneway watch", "laneway shards", "laneway dispatches",
			"laneway group join", "laneway group leave", "laneway group show":
			// There is no node: 3 says that everything else was right.
			code, text := invoke(t, binary, args)
			require.Equal(t, 3, code, "%s: %s\n%s", c.page, c.line, text)
		default:
			code, text := invoke(t, binary, append(slices.Clone(args), "--help"))
			require.Zero(t, code, "%s: %s\n%s", c.page, c.line, text)
			require.Regexp(t, `(?m)^  `+regexp.QuoteMeta(path)+`( |$)`, text, "%s: %s is no command", c.page, path)
		}
	}
	require.Greater(t, len(seen), 20, "command lines were found")
}

// invoke runs a command that finds no node.
func invoke(t *testing.T, binary string, args []string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"LANEWAY_SERVER=http://127.0.0.1:1", "HOME=" + cmd.Dir}
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), b.String()
	}
	require.NoError(t, err)
	return 0, b.String()
}

// words splits a command line as a shell would, as far as the docs need it.
func words(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	var w strings.Builder
	quoted, open := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if open {
				out = append(out, w.String())
			}
			w.Reset()
			open = false
		default:
			w.WriteRune(r)
			open = true
		}
	}
	require.False(t, quoted, "%s: a quote does not end", line)
	if open {
		out = append(out, w.String())
	}
	return out
}

var (
	link     = regexp.MustCompile(`[^!]\[[^\]]+\]\(([^)#]*)(#[^)]*)?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notASCII = regexp.MustCompile(`[^a-z0-9 _-]`)
	goFile   = regexp.MustCompile("`([a-z]+/[a-z0-9/_-]+\\.(?:go|proto|jsonl|py))`")
)

func TestEveryLinkAndFileExists(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			to, ok := all[path]
			if !ok {
				t.Errorf("%s links to %s, which does not exist", page, path)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(to), anchor) {
				t.Errorf("%s links to %s#%s, which has no such heading", page, path, anchor)
			}
		}
		for _, m := range goFile.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
}

// anchors are the ids that headings get.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		id := notASCII.ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(id, " ", "-"))
	}
	return out
}
