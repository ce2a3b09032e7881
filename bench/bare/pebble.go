// Package bare holds the raw baselines that Laneway's figures are ratios to: the
// same bytes through the bare client library, with nothing around it.
package bare

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
)

// Entries is what a baseline writes: the entries of one dispatch.
type Entries struct {
	Template   *mailbox.Template
	Recipients []mailbox.Recipient
}

// DB is a bare Pebble database in a directory of its own, with the memtable
// size and the synced log that Laneway's store has.
type DB struct {
	db  *pebble.DB
	dir string
	n   uint64
}

// OpenPebble opens a database in a new directory below parent.
func OpenPebble(parent string) (*DB, error) {
	dir, err := os.MkdirTemp(parent, "bare-pebble-")
	if err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, &pebble.Options{
		MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4, L0StopWritesThreshold: 64, Logger: quiet{},
	})
	if err != nil {
		return nil, err
	}
	return &DB{db: db, dir: dir}, nil
}

// Close closes and removes the database.
func (d *DB) Close() error {
	if err := d.db.Close(); err != nil {
		return err
	}
	return os.RemoveAll(d.dir)
}

// Write writes the entries in batches of at most batch entries, each with one
// synced commit, and returns how many there were and how long it took. Keys are
// as long as the store's: table and day, tenant, user, seq, type.
func (d *DB) Write(all []Entries, batch int) (entries int, took time.Duration, err error) {
	began := time.Now()
	b := d.db.NewBatch()
	in := 0
	flush := func() error {
		if in == 0 {
			return nil
		}
		in = 0
		if err := b.Commit(pebble.Sync); err != nil {
			return fmt.Errorf("bare Pebble: %w", err)
		}
		b = d.db.NewBatch()
		return nil
	}
	for _, e := range all {
		d.n++ // each write goes to keys of its own, as a new seq does
		for _, r := range e.Recipients {
			for i := range e.Template.Events() {
				if !r.Has(i) {
					continue
				}
				klen := 5 + len(e.Template.TenantID) + 1 + len(r.User) + 1 + 8 + 1
				op := b.SetDeferred(klen, e.Template.Size(i, r.User))
				k := append(op.Key[:0], 'e', 0, 0, 0, 0)
				k = append(append(k, e.Template.TenantID...), 0)
				k = append(append(k, r.User...), 0)
				k = binary.BigEndian.AppendUint64(k, d.n)
				_ = append(k, byte(e.Template.EventType(i)))
				e.Template.AppendEntry(op.Value[:0], i, r.User)
				if err := op.Finish(); err != nil {
					return 0, 0, err
				}
				entries++
				if in++; in >= batch {
					if err := flush(); err != nil {
						return 0, 0, err
					}
				}
			}
		}
	}
	if err := flush(); err != nil {
		return 0, 0, err
	}
	return entries, time.Since(began), b.Close()
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("bare Pebble: "+format, args...))
}
