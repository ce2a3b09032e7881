//go:build unix

package pebble

import (
	"errors"
	"strings"
	"syscall"
)

// lockHeld tells a directory in use from one that cannot be locked at all. For
// a directory that this very process has open Pebble has no sentinel.
func lockHeld(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held by current process")
}
