package server

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	serverschema "go.temporal.io/server/schema"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	toolsql "go.temporal.io/server/tools/sql"
	"google.golang.org/protobuf/types/known/durationpb"
)

// layStore fills in where the service keeps its state, and lays the schema and
// the namespaces there, if missing.
func (o Options) layStore(p *config.Persistence) error {
	var store, visibility *config.SQL
	if o.DB == "" {
		attrs := map[string]string{"mode": "memory", "cache": "shared"}
		store, visibility = sqliteConfig("temporal", attrs), sqliteConfig("visibility", attrs)
		if err := dropIndexes(visibility); err != nil {
			return err
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(o.DB), 0o755); err != nil {
			return err
		}
		attrs := map[string]string{
			"mode": "rwc", "journal_mode": "wal", "synchronous": "normal", "busy_timeout": "10000",
		}
		// Visibility has a file of its own: SQLite has one writer a file.
		store, visibility = sqliteConfig(o.DB, attrs), sqliteConfig(o.DB+"-visibility", attrs)
		if err := layFile(store, nil); err != nil {
			return err
		}
		if err := layFile(visibility, dropIndexes); err != nil {
			return err
		}
	}
	p.NumHistoryShards = int32(o.Shards)
	p.DefaultStore, p.VisibilityStore = "default", "visibility"
	p.DataStores = map[string]config.DataStore{"default": {SQL: store}, "visibility": {SQL: visibility}}
	return o.layNamespaces(store)
}

// sqliteConfig leaves the number of connections at its default, one: more are
// slower.
func sqliteConfig(name string, attrs map[string]string) *config.SQL {
	return &config.SQL{PluginName: sqlite.PluginName, DatabaseName: name, ConnectAttributes: maps.Clone(attrs)}
}

// layFile lays the schema in a file that isn't there yet, under another name
// first: a start that is cut short leaves no half-laid database.
func layFile(c *config.SQL, then func(*config.SQL) error) error {
	if _, err := os.Stat(c.DatabaseName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	laying := *c
	laying.DatabaseName += ".laying"
	// Not in WAL mode: all of it has to be in the one file that is renamed.
	laying.ConnectAttributes = map[string]string{"mode": "rwc"}
	for _, f := range []string{laying.DatabaseName, laying.DatabaseName + "-journal"} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := sqliteschema.SetupSchema(&laying); err != nil {
		return err
	}
	if then != nil {
		if err := then(&laying); err != nil {
			return err
		}
	}
	return os.Rename(laying.DatabaseName, c.DatabaseName)
}

// indexes finds the names of the visibility schema's indexes.
var indexes = regexp.MustCompile(`(?m)^CREATE INDEX (\w+)`)

// dropIndexes drops the visibility indexes that a development server can do
// without: the service writes each row three times, into 58 indexes.
func dropIndexes(c *config.SQL) error {
	ddl, err := fs.ReadFile(serverschema.Assets(), "sqlite/v3/visibility/schema.sql")
	if err != nil {
		return err
	}
	db, err := toolsql.NewConnection(c, log.NewNoopLogger())
	if err != nil {
		return err
	}
	defer db.Close()
	for _, m := range indexes.FindAllSubmatch(ddl, -1) {
		switch name := string(m[1]); name {
		case "default_idx", "by_workflow_id", "by_workflow_type", "by_status", "by_parent_workflow_id":
		default:
			if err := db.Exec("DROP INDEX IF EXISTS " + name); err != nil {
				return err
			}
		}
	}
	return nil
}

// layNamespaces writes the namespaces straight into the store.
func (o Options) layNamespaces(store *config.SQL) error {
	var list []*sqliteschema.NamespaceConfig
	for _, name := range o.namespaces() {
		n, err := sqliteschema.NewNamespaceConfig(clusterName, name, false, o.SearchAttributes)
		if err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		n.Detail.Config.Retention = durationpb.New(o.Retention)
		list = append(list, n)
	}
	return sqliteschema.CreateNamespaces(store, list...)
}
