package membership

import (
	"errors"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

var (
	// ErrMembershipSnapshotUnavailable: the frozen version's rows are not there
	// yet, cannot be reached, or are not what the record froze. Try again later.
	ErrMembershipSnapshotUnavailable = errors.New("membership snapshot unavailable")
	// ErrStaleBase: a user's slot is newer than the version the change was planned
	// on; the head has moved and must be read again.
	ErrStaleBase = errors.New("the group has changed since its version was read")
	// ErrSlotsExhausted: the generation has given out all 2^32 slots; the group
	// must be renumbered.
	ErrSlotsExhausted = errors.New("no slots left in this generation; renumber the group")
)

// versionName names a version in errors; ids are quoted, they are user-given.
func versionName(v mailbox.GroupVersion) string {
	return fmt.Sprintf("group %q/%q generation %d version %d", v.Tenant, v.ID, v.Generation, v.Version)
}

func corrupt(name, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", mailbox.ErrCorrupt, name, fmt.Sprintf(format, args...))
}

// unavailable keeps the cause and says that trying again later may help.
func unavailable(name string, cause error) error {
	return fmt.Errorf("%w: %s: %w", ErrMembershipSnapshotUnavailable, name, cause)
}
