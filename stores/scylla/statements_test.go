package scylla

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
)

// forbidden is what no statement may be: a CQL DELETE leaves tombstones that
// scans have to read (design 3.3). Rows go by their TTL.
var forbidden = regexp.MustCompile(`(?i)\bDELETE\b|\bTRUNCATE\b|\bDROP\b`)

// requireNoDelete checks statements that were sent.
func requireNoDelete(t *testing.T, statements []string) {
	t.Helper()
	for _, st := range statements {
		require.NotRegexp(t, forbidden, st)
	}
}

// requireNoDeletePrepared asks the server for every statement that was prepared
// in a keyspace, whoever sent it.
func requireNoDeletePrepared(t *testing.T, c *testservers.Cassandra, o Options) {
	t.Helper()
	s := openStore(t, o)
	iter := s.session.Session.Query("SELECT logged_keyspace, query_string FROM system.prepared_statements").Iter()
	var keyspace, st string
	var all []string
	for iter.Scan(&keyspace, &st) {
		if keyspace == s.keyspace || strings.Contains(st, s.keyspace+".") {
			all = append(all, st)
		}
	}
	require.NoError(t, iter.Close())
	require.Greater(t, len(all), 40, "a run of the suite prepares most of the store's statements on %s", c.Addr)
	for _, st := range all { // the tests' own TRUNCATE too
		require.NotRegexp(t, `(?i)\bDELETE\b`, st)
	}
}

func TestNoDeleteInSchemaFiles(t *testing.T) {
	files, err := schemaFiles()
	require.NoError(t, err)
	for _, f := range files {
		require.NotEmpty(t, f.statements, f.name)
		requireNoDelete(t, f.statements)
	}
}

// TestNoDeleteInSources reads every text of the module's Go code, and every call
// of a query builder in this package.
func TestNoDeleteInSources(t *testing.T) {
	root := moduleRoot(t)
	cql := regexp.MustCompile(`(?is)^\s*(BEGIN\s.*)?DELETE\b.*\bFROM\b`)
	texts := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ours := filepath.Dir(path) == filepath.Join(root, "stores", "scylla")
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					text, err := strconv.Unquote(n.Value)
					require.NoError(t, err)
					texts++
					require.NotRegexp(t, cql, text, path)
				}
			case *ast.SelectorExpr:
				if ours {
					require.NotContains(t, []string{"Delete", "DeleteBuilder", "DeleteQuery", "DeleteQueryContext"}, n.Sel.Name, "%s calls a builder of CQL DELETE", path)
				}
			}
			return true
		})
		return nil
	}))
	require.Greater(t, texts, 1000)
}

// TestSingleRowsAreReadThroughEmptyPages: the driver's Query.Scan takes an empty
// page for the end. Only iterators read on.
func TestSingleRowsAreReadThroughEmptyPages(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	scans := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Scan" && path != "scan.go" {
				x, ok := sel.X.(*ast.Ident)
				if ok && x.Name == "mailbox" {
					return true // the request of a scan
				}
				require.True(t, ok && x.Name == "iter", "%s calls Scan of something that is not an iterator: use one", path)
				scans++
			}
			return true
		})
	}
	require.Greater(t, scans, 5)
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no go.mod above")
		dir = filepath.Dir(dir)
	}
}

// TestBuildersWriteTheStatements states what the query builders make of the
// store's statements: a reader sees here what is sent.
func TestBuildersWriteTheStatements(t *testing.T) {
	for got, want := range map[string]string{
		insertEntry:        "INSERT INTO mailbox_entries (tenant_id,user_id,epoch,log_offset,event_type,entry) VALUES (?,?,?,?,?,?) USING TIMESTAMP ?",
		selectPage:         "SELECT epoch,log_offset,event_type,entry FROM mailbox_entries WHERE tenant_id=? AND user_id=? AND (epoch,log_offset)>(?,?) AND (epoch,log_offset)<=(?,?)",
		selectDays:         "SELECT epoch,log_offset,writetime(entry) FROM mailbox_entries WHERE tenant_id=? AND user_id=? AND (epoch,log_offset)>(?,?) AND (epoch,log_offset)<=(?,?) ORDER BY epoch DESC,log_offset DESC,event_type DESC",
		insertProof:        "INSERT INTO mailbox_days (shard,lane,day,tenant_id,user_id) VALUES (?,?,?,?,?) USING TIMESTAMP ?",
		insertShardDay:     "INSERT INTO shard_days (shard,day,epoch,log_offset) VALUES (?,?,?,?) USING TIMESTAMP ?",
		selectShardDays:    "SELECT day,epoch,log_offset FROM shard_days WHERE shard=? AND day>? AND day<=? GROUP BY day",
		selectProofs:       "SELECT day FROM mailbox_days WHERE shard=? AND lane=? AND day IN ? AND tenant_id=? AND user_id=?",
		selectProven:       "SELECT tenant_id,user_id FROM mailbox_days WHERE shard=? AND lane=? AND day=?",
		insertBound:        "INSERT INTO mailbox_bounds (tenant_id,user_id,kind,epoch,log_offset,raised_at) VALUES (?,?,?,?,?,?)",
		supersedeBound:     "INSERT INTO mailbox_bounds (tenant_id,user_id,kind,epoch,log_offset,raised_at) VALUES (?,?,?,?,?,?) USING TTL ?",
		selectBounds:       "SELECT kind,epoch,log_offset FROM mailbox_bounds WHERE tenant_id=? AND user_id=? AND kind IN (0,1) PER PARTITION LIMIT 1",
		selectBoundRows:    "SELECT epoch,log_offset,ttl(raised_at) FROM mailbox_bounds WHERE tenant_id=? AND user_id=? AND kind=? LIMIT 64",
		insertLaneExpired:  "INSERT INTO lane_expired (shard,lane,kind,day,epoch,log_offset) VALUES (?,?,?,?,?,?)",
		selectLaneExpired:  "SELECT day,epoch,log_offset FROM lane_expired WHERE shard=? AND lane=? AND kind=? LIMIT 1",
		selectShardExpired: "SELECT lane,day FROM lane_expired WHERE shard=? AND lane IN ? AND kind=? PER PARTITION LIMIT 1",
		insertManifest:     "INSERT INTO membership_versions (tenant_id,group_id,generation,version,manifest) VALUES (?,?,?,?,?)",
		insertBitmap:       "INSERT INTO membership_bitmaps (tenant_id,group_id,generation,version,shard,bitmap) VALUES (?,?,?,?,?,?)",
		insertDirectory:    "INSERT INTO membership_directory (tenant_id,group_id,generation,shard,slot,user_id,join_seq) VALUES (?,?,?,?,?,?,?)",
		selectDirectory:    "SELECT slot,user_id,join_seq FROM membership_directory WHERE tenant_id=? AND group_id=? AND generation=? AND shard=? AND slot>=?",
		insertSlot:         "INSERT INTO membership_slots (tenant_id,group_id,generation,shard,user_id,slot,join_seq) VALUES (?,?,?,?,?,?,?)",
		selectSlot:         "SELECT slot,join_seq FROM membership_slots WHERE tenant_id=? AND group_id=? AND generation=? AND shard=? AND user_id=? LIMIT 1",
	} {
		require.Equal(t, want, got)
	}
}
