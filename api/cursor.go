package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"lukechampine.com/blake3"

	"github.com/laneway/laneway/mailbox"
)

// ErrCursorInvalid: the text is not a cursor this build can read, or it is
// another user's.
var ErrCursorInvalid = errors.New("invalid cursor")

// The layout of a cursor before base64url. Clients must treat it as opaque.
const (
	cursorVersion = 1

	cursorBindingAt = 1
	cursorEpochAt   = cursorBindingAt + 8
	cursorAfterAt   = cursorEpochAt + 2
	cursorSumAt     = cursorAfterAt + 8
	cursorBytes     = cursorSumAt + 8

	cursorBindingDomain = "laneway/cursor/user/v1"
	cursorSumDomain     = "laneway/cursor/sum/v1"
)

// cursorText is strict: one position has one text.
var cursorText = base64.RawURLEncoding.Strict()

// cursor is a user's position: everything at or below After has been delivered.
// Epoch is the shard epoch under which the position was told.
type cursor struct {
	Epoch mailbox.Epoch
	After mailbox.Seq
}

// encodeCursor returns the opaque text of a position in u's mailbox.
func encodeCursor(u mailbox.User, c cursor) string {
	var b [cursorBytes]byte
	b[0] = cursorVersion
	binding := cursorBinding(u)
	copy(b[cursorBindingAt:], binding[:])
	binary.BigEndian.PutUint16(b[cursorEpochAt:], uint16(c.Epoch))
	binary.BigEndian.PutUint64(b[cursorAfterAt:], uint64(c.After))
	sum := cursorSum(b[:cursorSumAt])
	copy(b[cursorSumAt:], sum[:])
	return cursorText.EncodeToString(b[:])
}

// decodeCursor reads a cursor of u. The empty text is the beginning of the
// mailbox.
func decodeCursor(u mailbox.User, text string) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	var b [cursorBytes]byte
	if len(text) != cursorText.EncodedLen(cursorBytes) {
		return cursor{}, badCursor("it has %d characters instead of %d", len(text), cursorText.EncodedLen(cursorBytes))
	}
	if _, err := cursorText.Decode(b[:], []byte(text)); err != nil {
		return cursor{}, badCursor("it is not base64url")
	}
	if b[0] != cursorVersion {
		return cursor{}, badCursor("version %d is unknown to this build", b[0])
	}
	if sum := cursorSum(b[:cursorSumAt]); string(sum[:]) != string(b[cursorSumAt:]) {
		return cursor{}, badCursor("it is damaged")
	}
	if binding := cursorBinding(u); string(binding[:]) != string(b[cursorBindingAt:cursorEpochAt]) {
		return cursor{}, badCursor("it belongs to another user")
	}
	return cursor{
		Epoch: mailbox.Epoch(binary.BigEndian.Uint16(b[cursorEpochAt:])),
		After: mailbox.Seq(binary.BigEndian.Uint64(b[cursorAfterAt:])),
	}, nil
}

func badCursor(format string, args ...any) error {
	return fmt.Errorf("%w: %s; pass a cursor exactly as an earlier Pull of this user returned it, or none to start from the beginning",
		ErrCursorInvalid, fmt.Sprintf(format, args...))
}

func cursorBinding(u mailbox.User) [8]byte {
	var buf [3*4 + 32 + 2*mailbox.MaxIDBytes]byte
	x := mailbox.AppendLP(buf[:0], cursorBindingDomain)
	x = mailbox.AppendLP(x, u.Tenant)
	x = mailbox.AppendLP(x, u.ID)
	sum := blake3.Sum256(x)
	return [8]byte(sum[:8])
}

// cursorSum detects damage. It is no signature: a cursor only ever names a
// position in the mailbox of the user that presents it.
func cursorSum(b []byte) [8]byte {
	var buf [2*4 + 32 + cursorBytes]byte
	x := mailbox.AppendLP(buf[:0], cursorSumDomain)
	x = mailbox.AppendLP(x, b)
	sum := blake3.Sum256(x)
	return [8]byte(sum[:8])
}
