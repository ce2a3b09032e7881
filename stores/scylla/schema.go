package scylla

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

//go:embed schema/*.cql
var schemaFS embed.FS

// schemaName tells Laneway's rows of the schema tables from those of others.
const schemaName = "laneway"

const (
	// entryMargin is how many days entries live longer than the retention: one for
	// the day that they were created in, one for clocks and records ahead of time.
	entryMargin = 2
	// proofMargin is how many days more the proofs and maxima of days live. That is
	// how long nobody may promote expired days before more is reported as lost
	// than was (see sweep.go).
	proofMargin = 33

	daySeconds = 24 * 60 * 60
)

// entryTTL and proofTTL are the lifetimes, in seconds, that a retention needs.
func entryTTL(retentionDays int) int { return (retentionDays + entryMargin) * daySeconds }

func proofTTL(retentionDays int) int { return (retentionDays + entryMargin + proofMargin) * daySeconds }

// schemaFile is one file of schema/, which is named NNNN_what.cql.
type schemaFile struct {
	version    int
	name       string
	digest     string // of the file's text
	statements []string
}

// schemaFiles reads the schema of this build, in order of version.
func schemaFiles() ([]schemaFile, error) {
	entries, err := schemaFS.ReadDir("schema")
	if err != nil {
		return nil, err
	}
	var out []schemaFile
	for _, e := range entries {
		text, err := schemaFS.ReadFile("schema/" + e.Name())
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(out) {
			return nil, fmt.Errorf("scylla: schema file %s: want version %04d", e.Name(), len(out))
		}
		out = append(out, schemaFile{version, e.Name(), mailbox.Sum(text).String(), splitStatements(string(text))})
	}
	return out, nil
}

// splitStatements cuts a file at its semicolons and drops its comments. Texts in
// quotes hold neither.
func splitStatements(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if i := strings.Index(line, "--"); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimRight(line, " "); line != "" {
			lines = append(lines, line)
		}
	}
	var out []string
	for part := range strings.SplitSeq(strings.Join(lines, "\n"), ";") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// fillIn puts the lifetimes that a retention needs into a statement.
func fillIn(statement string, retentionDays int) string {
	return strings.NewReplacer(
		"{{entry_ttl}}", strconv.Itoa(entryTTL(retentionDays)),
		"{{day_ttl}}", strconv.Itoa(proofTTL(retentionDays)),
	).Replace(statement)
}

// tableSchema is what a CREATE TABLE statement demands.
type tableSchema struct {
	name    string
	columns map[string]string // type by name
	ttl     string            // what default_time_to_live is set to, as in the file
}

var (
	createTable = regexp.MustCompile(`(?s)^CREATE TABLE IF NOT EXISTS (\w+) \(\n(.*?)\n\)(.*)$`)
	columnLine  = regexp.MustCompile(`^\s*([a-z_]+) ([a-z]+)( PRIMARY KEY)?,?$`)
	ttlOption   = regexp.MustCompile(`default_time_to_live = ([^\s]+)`)
)

// parseTable reads a CREATE TABLE statement as schema/ has them: one column a
// line.
func parseTable(statement string) (tableSchema, error) {
	m := createTable.FindStringSubmatch(statement)
	if m == nil {
		return tableSchema{}, fmt.Errorf("scylla: a schema statement is not CREATE TABLE IF NOT EXISTS with a column a line: %.60s", statement)
	}
	t := tableSchema{name: m[1], columns: map[string]string{}}
	for line := range strings.SplitSeq(m[2], "\n") {
		if c := columnLine.FindStringSubmatch(line); c != nil {
			t.columns[c[1]] = c[2]
		}
	}
	if o := ttlOption.FindStringSubmatch(m[3]); o != nil {
		t.ttl = o[1]
	}
	return t, nil
}

// schemaTables returns the tables of all files, by name.
func schemaTables(files []schemaFile) (map[string]tableSchema, error) {
	out := map[string]tableSchema{}
	for _, f := range files {
		for _, st := range f.statements {
			t, err := parseTable(st)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			out[t.name] = t
		}
	}
	return out, nil
}

// lifetime returns the seconds that a table's rows have to live at least, 0 for
// ever.
func (t *tableSchema) lifetime(retentionDays int) int {
	switch t.ttl {
	case "{{entry_ttl}}":
		return entryTTL(retentionDays)
	case "{{day_ttl}}":
		return proofTTL(retentionDays)
	}
	return 0
}

// lifetimes are the retentions that the tables had, from which day on each.
type lifetimes []lifetime

type lifetime struct {
	since     mailbox.Day
	retention int
}

// last returns the retention that the tables are made for now.
func (l lifetimes) last() int {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1].retention
}

// at returns the retention that a day's rows were written under, at least.
func (l lifetimes) at(day mailbox.Day) int {
	shortest := 0
	for i := range l {
		if i == 0 || l[i].since <= day {
			shortest = l[i].retention
		}
	}
	return shortest
}

// expired returns the newest day that has expired under a retention. Days
// whose entries were written with shorter lives expire by the retention of then.
func (l lifetimes) expired(nowMillis int64, retention int) mailbox.Day {
	newest := expiredDay(nowMillis, retention)
	for i := range l {
		if i+1 < len(l) && l[i].retention < retention {
			newest = max(newest, min(expiredDay(nowMillis, l[i].retention), l[i+1].since-1))
		}
	}
	return newest
}

// expiredDay is the newest day d for which d.Expired holds.
func expiredDay(nowMillis int64, retention int) mailbox.Day {
	return mailbox.DayOf(nowMillis) - mailbox.Day(retention) - 1
}

func (l lifetimes) sort() {
	slices.SortFunc(l, func(a, b lifetime) int { return int(a.since) - int(b.since) })
}
