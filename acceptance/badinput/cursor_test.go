package badinput_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
)

// TestCursorsThatAreNotThisUsers gives Pull, Watch and Truncate every cursor
// that is not the user's own.
func TestCursorsThatAreNotThisUsers(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	for i := range 3 {
		say(t, n.Client, "t", "c", fmt.Sprint("m", i), "ann", "ann", "bob")
		say(t, n.Client, "other", "c", fmt.Sprint("m", i), "ann", "ann", "bob")
	}
	cursor := func(tenant, user string) string {
		entries(t, n.Client, tenant, user, 3)
		page, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: tenant, UserId: user, MaxItems: 2})
		require.NoError(t, err)
		require.Len(t, page.Entries, 2)
		return page.Cursor
	}
	own := cursor("t", "ann")
	flipped := []byte(own)
	flipped[len(flipped)/2] ^= 1
	for name, tt := range map[string]struct{ cursor, says string }{
		"another user's":     {cursor("t", "bob"), "it belongs to another user"},
		"another tenant's":   {cursor("other", "ann"), "it belongs to another user"},
		"damaged":            {string(flipped), "invalid cursor"},
		"truncated":          {own[:len(own)-1], "it has 35 characters instead of 36"},
		"extended":           {own + "A", "it has 37 characters instead of 36"},
		"of another version": {strings.Repeat("_", 36), "version 255 is unknown to this build"},
		"no base64":          {strings.Repeat("!", 36), "it is not base64url"},
		"with a newline":     {own[:35] + "\n", "it is not base64url"},
		"a text":             {"0", "it has 1 characters instead of 36"},
		"a megabyte":         {strings.Repeat("A", 1000<<10), "it has 1024000 characters instead of 36"},
	} {
		for call, err := range map[string]error{
			"pull": func() error {
				_, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann", Cursor: tt.cursor})
				return err
			}(),
			"watch": n.Watch(bounded(t), client.Mailbox{Tenant: "t", User: "ann"}, tt.cursor, func(*lanewayv1.WatchResponse) error { return nil }),
			"trim":  n.Truncate(bounded(t), client.Mailbox{Tenant: "t", User: "ann"}, tt.cursor),
		} {
			require.Equal(t, reason.CursorInvalid, client.ReasonOf(err), "%s: %s: %v", call, name, err)
			require.ErrorContains(t, err, tt.says, "%s: %s", call, name)
			require.ErrorContains(t, err, "pass a cursor exactly as an earlier Pull of this user returned it, or none to start from the beginning")
		}
	}
	rest, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann", Cursor: own})
	require.NoError(t, err)
	require.Equal(t, []string{"m2"}, messages(rest.Entries), "nothing was trimmed, and its own still works")
}

// TestCursorAheadAndOfALaterEpoch shows cursors of one deployment to another
// that is behind it, as a restored backup would be.
func TestCursorAheadAndOfALaterEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNode(t, settings(t, dir))
	for i := range 5 {
		say(t, n.Client, "t", "c", fmt.Sprint("m", i), "ann", "ann")
	}
	entries(t, n.Client, "t", "ann", 5)
	ahead, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann"})
	require.NoError(t, err)
	n.Stop()
	n = startNode(t, settings(t, dir))
	later, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann"})
	require.NoError(t, err)
	require.NotEqual(t, ahead.Cursor, later.Cursor)
	n.Stop()

	n = startNode(t, settings(t, t.TempDir()))
	page, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann", Cursor: ahead.Cursor})
	require.NoError(t, err)
	require.Empty(t, page.Entries)
	require.True(t, page.CaughtUp)
	require.Equal(t, ahead.Cursor, page.Cursor, "one ahead of W gets itself back")
	_, err = n.dial(client.WithRetries(0)).Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann", Cursor: later.Cursor})
	require.Equal(t, reason.ShardMoved, client.ReasonOf(err), "a later owner was met: this one's pages do not count")
}

// TestPageSizes: 0, negative and huge.
func TestPageSizes(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	for i := range 3 {
		say(t, n.Client, "t", "c", fmt.Sprint("m", i), "ann", "ann")
	}
	entries(t, n.Client, "t", "ann", 3)
	for name, tt := range map[string]struct {
		items, bytes int32
		entries      int
		says         string
	}{
		"defaults":       {0, 0, 3, ""},
		"one":            {1, 0, 1, ""},
		"one byte":       {0, 1, 1, ""},
		"huge":           {math.MaxInt32, math.MaxInt32, 3, ""},
		"negative":       {-1, 0, 0, "max_items is -1; use 0 for the default (500), at most 5000"},
		"very negative":  {math.MinInt32, 0, 0, "max_items is -2147483648"},
		"negative bytes": {0, -1, 0, "max_bytes is -1; use 0 for the default"},
	} {
		page, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann", MaxItems: tt.items, MaxBytes: tt.bytes})
		if tt.says != "" {
			require.Equal(t, reason.InvalidArgument, client.ReasonOf(err), name)
			require.ErrorContains(t, err, tt.says, name)
			continue
		}
		require.NoError(t, err, name)
		require.Len(t, page.Entries, tt.entries, name)
	}
	_, err := n.Dispatches(bounded(t), -1)
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
	require.ErrorContains(t, err, "limit is -1; use 0 for the default (100)")
}
