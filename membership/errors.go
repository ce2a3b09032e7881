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
	// ErrMembershipVersionVoided: the group was renumbered before the record's
	// conversation_seq, so that the version's slots mean nobody in it any more.
	ErrMembershipVersionVoided = errors.New("membership version is void: the group was renumbered before that conversation_seq")
	// ErrSlotsExhausted: the generation has given out all 2^32 slots; the group
	// must be renumbered.
	ErrSlotsExhausted = errors.New("no slots left in this generation; renumber the group")
)

// versionName names a version in errors; ids are quoted, they are user-given.
type versionName mailbox.GroupVersion

func (v versionName) String() string {
	return fmt.Sprintf("group %q/%q generation %d version %d", v.Tenant, v.ID, v.Generation, v.Version)
}

// bitmapName names a shard's bitmap: a blob, or the row of the version that wrote
// it.
type bitmapName struct {
	version mailbox.GroupVersion
	shard   mailbox.Shard
	blob    string
}

func (b bitmapName) String() string {
	if b.blob != "" {
		return "blob " + b.blob
	}
	return fmt.Sprintf("bitmap of shard %d of %s", b.shard, versionName(b.version))
}

// manifestName names a version's manifest.
type manifestName mailbox.GroupVersion

func (m manifestName) String() string { return "manifest of " + versionName(m).String() }

// corrupt names what is damaged; name is a string or a fmt.Stringer, so that
// names are only made for errors.
func corrupt(name any, format string, args ...any) error {
	return fmt.Errorf("%w: %v: %s", mailbox.ErrCorrupt, name, fmt.Sprintf(format, args...))
}

// unavailable keeps the cause and says that trying again later may help.
func unavailable(name any, cause error) error {
	return fmt.Errorf("%w: %v: %w", ErrMembershipSnapshotUnavailable, name, cause)
}
