//go:build !unix

package pebble

import (
	"errors"
	"io/fs"
)

// lockHeld: elsewhere Pebble opens its lock file exclusively, so that any
// refusal but these is another store.
func lockHeld(err error) bool {
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}
