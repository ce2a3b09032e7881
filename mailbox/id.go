package mailbox

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxIDBytes is the longest tenant, user, group, conversation or message id.
const MaxIDBytes = 128

// CheckID reports whether id is 1 to 128 bytes of valid UTF-8 without control
// characters (design 2.5). what names the field in the error.
func CheckID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: %s is empty", ErrInvalidID, what)
	case len(id) > MaxIDBytes:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrInvalidID, what, len(id), MaxIDBytes)
	case printableASCII(id): // nearly all ids; this runs once per recipient
		return nil
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalidID, what)
	}
	for i, r := range id {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: %s has a control character (U+%04X) at byte %d", ErrInvalidID, what, r, i)
		}
	}
	return nil
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// User names one mailbox.
type User struct {
	Tenant string
	ID     string
}

// Check validates both parts.
func (u User) Check() error {
	if err := CheckID("tenant_id", u.Tenant); err != nil {
		return err
	}
	return CheckID("user_id", u.ID)
}

// Conversation names one conversation of a tenant.
type Conversation struct {
	Tenant string
	ID     string
}

// Check validates both parts.
func (c Conversation) Check() error {
	if err := CheckID("tenant_id", c.Tenant); err != nil {
		return err
	}
	return CheckID("conversation_id", c.ID)
}
