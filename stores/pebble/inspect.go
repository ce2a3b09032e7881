package pebble

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// Inspect returns what a store's directory was made for, and changes nothing in
// it; ok is false while no node has used it. It returns mailbox.ErrStoreLocked
// when a store has the directory.
func Inspect(dir string) (d mailbox.Deployment, ok bool, err error) {
	there, err := pebble.Peek(dir, vfs.Default)
	if errors.Is(err, os.ErrNotExist) || err == nil && !there.Exists {
		return d, false, nil
	}
	if err != nil {
		return d, false, fmt.Errorf("pebble: look into %s: %w", dir, err)
	}
	lock, err := lockDirectory(vfs.Default, dir)
	if err != nil {
		return d, false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	db, err := pebble.Open(dir, &pebble.Options{
		Comparer: comparer, Merger: merger, FormatMajorVersion: pebble.FormatWALSyncChunks, ReadOnly: true, Lock: lock, Logger: silent{},
	})
	if err != nil {
		return d, false, corrupt("pebble: open "+dir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	row, closer, err := db.Get(settingKey("deployment"))
	if errors.Is(err, pebble.ErrNotFound) {
		return d, false, nil
	}
	if err != nil {
		return d, false, corrupt("pebble: read "+dir, err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	d, err = rows.DecodeDeployment(row)
	return d, err == nil, err
}

// silent is a logger for what only looks.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
