package api

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

var alice = mailbox.User{Tenant: "acme", ID: "alice"}

// goldenCursor is alice at 2:41 under epoch 3.
const goldenCursor = "AUMvCdWzNElGAAMAAgAAAAAAKYBOuUn-8kGG"

func TestACursorComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := mailbox.User{Tenant: rapid.StringN(1, 10, 40).Draw(t, "tenant"), ID: rapid.StringN(1, 10, 40).Draw(t, "user")}
		c := cursor{mailbox.Epoch(rapid.Uint16().Draw(t, "epoch")), mailbox.Seq(rapid.Uint64().Draw(t, "after"))}
		got, err := decodeCursor(u, encodeCursor(u, c))
		require.NoError(t, err)
		require.Equal(t, c, got)
	})
}

func TestACursorsTextIsPinned(t *testing.T) {
	// Cursors outlive a process: this text must stay readable.
	c := cursor{Epoch: 3, After: 2<<48 | 41}
	require.Equal(t, goldenCursor, encodeCursor(alice, c))
	got, err := decodeCursor(alice, goldenCursor)
	require.NoError(t, err)
	require.Equal(t, c, got)
}

func TestADamagedCursorIsRefused(t *testing.T) {
	text := encodeCursor(alice, cursor{3, 1<<48 | 7})
	for i := range text {
		for _, c := range []byte("A_z") {
			bad := text[:i] + string(c) + text[i+1:]
			if bad == text {
				continue
			}
			_, err := decodeCursor(alice, bad)
			require.ErrorIs(t, err, ErrCursorInvalid, "character %d replaced by %c", i, c)
			require.ErrorContains(t, err, "pass a cursor exactly as")
		}
		_, err := decodeCursor(alice, text[:i]+text[i+1:])
		require.ErrorIs(t, err, ErrCursorInvalid)
	}
}

func TestACursorOfAnotherUserIsRefused(t *testing.T) {
	text := encodeCursor(alice, cursor{1, 5})
	for _, u := range []mailbox.User{{Tenant: "acme", ID: "bob"}, {Tenant: "other", ID: "alice"}, {Tenant: "acmea", ID: "lice"}} {
		_, err := decodeCursor(u, text)
		require.ErrorIs(t, err, ErrCursorInvalid)
		require.ErrorContains(t, err, "another user")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(goldenCursor)
	f.Add(encodeCursor(alice, cursor{65535, 1<<64 - 1}))
	f.Add(encodeCursor(mailbox.User{Tenant: "t", ID: "u"}, cursor{1, 1}))
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decodeCursor(alice, text)
		if err != nil {
			require.ErrorIs(t, err, ErrCursorInvalid)
			return
		}
		if text != "" { // one position, one text
			require.Equal(t, text, encodeCursor(alice, c))
		}
	})
}
