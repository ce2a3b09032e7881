package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/conversation"
)

const testRun = "0b6a0f3e-run"

func runningRenumbering(step string) *lanewayv1.RenumberingStatus {
	return &lanewayv1.RenumberingStatus{WorkflowId: "renumber/0123", RunId: testRun, State: "running", Step: step}
}

func completedRenumbering() *lanewayv1.RenumberingStatus {
	return &lanewayv1.RenumberingStatus{
		WorkflowId: "renumber/0123", RunId: testRun, State: "completed", Step: "renumbered",
		Generation: 2, MembershipVersion: 8, ConversationSeq: 41, MemberCount: 3, ClosedMs: 12,
	}
}

func TestGroupRenumberWaitsForItsRun(t *testing.T) {
	n := newFakeNode(t)
	n.slots = 14
	n.renumberings = []*lanewayv1.RenumberingStatus{runningRenumbering(""), runningRenumbering("closing"), runningRenumbering("renumbering"), completedRenumbering()}
	r := n.run("group", "renumber", "staff")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "group staff is in generation 2 from conversation seq 41 on: 3 members in as many slots (version 8); it took no writes for 12 ms\n", r.out)
	require.Equal(t, "staff: closing\nstaff: renumbering\n", r.err)
	describe := `describe staff "` + testRun + `"`
	require.Equal(t, []string{"start staff force=false", describe, describe, describe}, n.renumbered)

	r = n.run("group", "renumber", "staff", "--status", "-o", "json")
	require.Equal(t, exitOK, r.code, r.err)
	require.JSONEq(t, `{"tenant":"acme","group":"staff","state":"completed","step":"renumbered","generation":2,"membership_version":8,
		"conversation_seq":41,"members":3,"closed_ms":12,"workflow_id":"renumber/0123","run_id":"`+testRun+`"}`, r.out)
}

func TestGroupRenumberNeedsForceWhenNotDue(t *testing.T) {
	n := newFakeNode(t)
	n.renumberings = []*lanewayv1.RenumberingStatus{completedRenumbering()}
	r := n.run("group", "renumber", "staff")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "RENUMBERING_NOT_DUE")
	require.Contains(t, r.err, "5 slots and has 3 members")
	require.Contains(t, r.err, "Next: ")
	require.Contains(t, r.err, "--force")
	require.Empty(t, n.renumbered)
	require.Equal(t, exitOK, n.run("group", "renumber", "staff", "--force").code)
	require.Equal(t, []string{"start staff force=true"}, n.renumbered)
}

func TestGroupRenumberDetachedCancelledAndFailed(t *testing.T) {
	n := newFakeNode(t)
	n.slots = 14
	n.renumberings = []*lanewayv1.RenumberingStatus{runningRenumbering("")}
	r := n.run("group", "renumber", "staff", "--detach")
	require.Equal(t, ran{exitOK, "renumbering of group staff is running, workflow renumber/0123\n", ""}, r)

	n.renumbered = nil
	ended := &lanewayv1.RenumberingStatus{WorkflowId: "renumber/0123", RunId: testRun, State: "canceled", Failure: "cancelled; the group was opened again"}
	n.renumberings = []*lanewayv1.RenumberingStatus{runningRenumbering("closing"), runningRenumbering("reopening"), ended}
	r = n.run("group", "renumber", "staff", "--cancel")
	require.Equal(t, ran{exitOK, "renumbering of group staff cancelled: the group was opened again\n", "staff: reopening\n"}, r)
	require.Equal(t, "cancel staff", n.renumbered[1])

	n.renumbered = nil
	n.renumberings = []*lanewayv1.RenumberingStatus{completedRenumbering()}
	r = n.run("group", "renumber", "staff", "--cancel")
	require.Equal(t, exitOK, r.code)
	require.Equal(t, "nothing to cancel: no renumbering of group staff runs\n", r.err)
	require.Contains(t, r.out, "group staff is in generation 2")
	require.NotContains(t, n.renumbered, "cancel staff")

	n.renumberings = []*lanewayv1.RenumberingStatus{{WorkflowId: "renumber/0123", RunId: testRun, State: "failed", Failure: "StoreError: disk full"}}
	r = n.run("group", "renumber", "staff")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.out, "StoreError: disk full")

	n.renumberings = []*lanewayv1.RenumberingStatus{{}}
	r = n.run("group", "renumber", "staff", "--status")
	require.Equal(t, ran{exitOK, "no renumbering of group staff is known\n", ""}, r)
	require.Equal(t, exitUsage, n.run("group", "renumber", "staff", "--status", "--cancel").code)
}

// TestAnInterruptedRenumberingSaysWhatGoesOn: only one that was accepted does.
func TestAnInterruptedRenumberingSaysWhatGoesOn(t *testing.T) {
	n := newFakeNode(t)
	n.slots = 14
	n.renumberings = []*lanewayv1.RenumberingStatus{runningRenumbering("closing")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs strings.Builder
	code := run(ctx, []string{"group", "renumber", "staff"}, stdio{strings.NewReader(""), &out, interrupting{&errs, "staff: closing", cancel}}, []string{"LANEWAY_TENANT=acme", "LANEWAY_SERVER=" + n.server.URL})
	require.Equal(t, exitInterrupted, code)
	require.Contains(t, errs.String(), "interrupted\nNext: the renumbering goes on without the command; `laneway group renumber staff --status` shows it\n")

	r := n.runWith(ctx, "", "group", "renumber", "staff")
	require.Equal(t, ran{exitInterrupted, "", "interrupted\nNext: it may have been started; `laneway group renumber staff --status` shows it\n"}, r)
}

func TestGroupShowProposesARenumbering(t *testing.T) {
	n := newFakeNode(t)
	n.slots = 14
	r := n.run("group", "show", "staff")
	require.Contains(t, r.out, "renumbering is due: 14 slots for 3 members; start it with `laneway group renumber staff`")
	n.closed = &conversation.Closing{Token: "t", Since: time.UnixMilli(created), Deadline: time.UnixMilli(created + 30_000)}
	r = n.run("group", "show", "staff")
	require.Contains(t, r.out, "closed to writes for a renumbering since 2023-11-14T22:13:20.000Z, until 2023-11-14T22:13:50.000Z at the latest")
	r = n.run("group", "show", "staff", "-o", "json")
	require.Contains(t, r.out, `"renumbering_due": true`)
	require.Contains(t, r.out, `"closed_since": "2023-11-14T22:13:20.000Z"`)
}
