package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

// renumberPoll is how often a renumbering that runs is asked what it is at.
const renumberPoll = 200 * time.Millisecond

func newGroupRenumberCmd(a *app) *cobra.Command {
	var force, cancel, detach, status bool
	cmd := &cobra.Command{
		Use: "renumber GROUP", Short: "Give a group's members new slots, without holes",
		Long: "Gives the members of a group new slots, from 0 on and without holes. Each join takes a new slot, so that a group\n" +
			"with much coming and going has many more slots than members; `laneway group show` says when that is too many.\n\n" +
			"The group takes no writes meanwhile: senders are told to come again, and the Go client does so by itself. The work\n" +
			"is a workflow; this command waits for its end. Once it was accepted, interrupting the command does not end it.",
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			group := args[0]
			var s *lanewayv1.RenumberingStatus
			switch {
			case status:
				if s, err = cl.Renumbering(ctx, a.tenant, group, ""); err != nil {
					return err
				}
				return a.printRenumbering(group, s)
			case cancel:
				if s, err = cl.Renumbering(ctx, a.tenant, group, ""); err != nil {
					return err
				}
				if s.State != "running" {
					fmt.Fprintf(a.err, "nothing to cancel: no renumbering of group %s runs\n", group)
					return a.printRenumbering(group, s)
				}
				if err := cl.CancelRenumbering(ctx, a.tenant, group); err != nil {
					return unlessRefused(err, fmt.Sprintf("the cancellation may have been asked for; `laneway group renumber %s --status` shows it", group))
				}
				s, err = cl.Renumbering(ctx, a.tenant, group, s.RunId)
			default:
				if s, err = cl.Renumber(ctx, a.tenant, group, force); err != nil {
					return unlessRefused(err, fmt.Sprintf("it may have been started; `laneway group renumber %s --status` shows it", group))
				}
			}
			if err != nil {
				return err
			}
			if !detach {
				if s, err = a.awaitRenumbering(ctx, cl, group, s); err != nil {
					return unlessRefused(err, fmt.Sprintf("the renumbering goes on without the command; `laneway group renumber %s --status` shows it", group))
				}
			}
			if err := a.printRenumbering(group, s); err != nil {
				return err
			}
			if s.Failure != "" && !cancel {
				return errors.New("the group was not renumbered")
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also when it is not due")
	cmd.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "end the one that runs, and open the group again")
	cmd.Flags().BoolVar(&status, "status", false, "show the last one and start none")
	cmd.MarkFlagsMutuallyExclusive("force", "cancel", "status")
	cmd.MarkFlagsMutuallyExclusive("detach", "status")
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

// unlessRefused says what may be so after an error that is no node's answer: the
// command was interrupted, or its time was over.
func unlessRefused(err error, next string) error {
	if errors.As(err, new(*client.Error)) {
		return err
	}
	return unsettled{err, next}
}

// awaitRenumbering waits for the end of a run.
func (a *app) awaitRenumbering(ctx context.Context, cl *client.Client, group string, s *lanewayv1.RenumberingStatus) (*lanewayv1.RenumberingStatus, error) {
	run, step := s.RunId, ""
	for s.State == "running" {
		if s.Step != "" && s.Step != step && a.output != outputJSON {
			step = s.Step
			fmt.Fprintf(a.err, "%s: %s\n", group, step)
		}
		t := time.NewTimer(renumberPoll)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		case <-t.C:
		}
		var err error
		if s, err = cl.Renumbering(ctx, a.tenant, group, run); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (a *app) printRenumbering(group string, s *lanewayv1.RenumberingStatus) error {
	if a.output == outputJSON {
		return writeJSON(a.out, struct {
			Tenant          string `json:"tenant"`
			Group           string `json:"group"`
			State           string `json:"state"`
			Step            string `json:"step,omitempty"`
			Generation      uint64 `json:"generation,omitempty"`
			Version         uint64 `json:"membership_version,omitempty"`
			ConversationSeq uint64 `json:"conversation_seq,omitempty"`
			Members         uint32 `json:"members,omitempty"`
			ClosedMs        int64  `json:"closed_ms,omitempty"`
			Failure         string `json:"failure,omitempty"`
			Workflow        string `json:"workflow_id,omitempty"`
			Run             string `json:"run_id,omitempty"`
		}{
			a.tenant, group, s.State, s.Step, s.Generation, s.MembershipVersion, s.ConversationSeq, s.MemberCount, s.ClosedMs,
			s.Failure, s.WorkflowId, s.RunId,
		})
	}
	var text string
	switch {
	case s.State == "":
		text = fmt.Sprintf("no renumbering of group %s is known", group)
	case s.State == "canceled": // one spelling for people; the API has Temporal's
		text = fmt.Sprintf("renumbering of group %s cancelled: %s", group, strings.TrimPrefix(s.Failure, "cancelled; "))
	case s.Failure != "":
		text = fmt.Sprintf("renumbering of group %s %s: %s", group, s.State, s.Failure)
	case s.State == "completed":
		text = fmt.Sprintf("group %s is in generation %d from conversation seq %d on: %d members in as many slots (version %d)",
			group, s.Generation, s.ConversationSeq, s.MemberCount, s.MembershipVersion)
		if s.ClosedMs > 0 {
			text += fmt.Sprintf("; it took no writes for %d ms", s.ClosedMs)
		}
	default:
		text = fmt.Sprintf("renumbering of group %s is %s, workflow %s", group, s.State, s.WorkflowId)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// printRenumberingDue says below a group's table what there is to say of it.
func (a *app) printRenumberingDue(group string, g *lanewayv1.GetGroupResponse) error {
	if g.ClosedSinceMs > 0 {
		_, err := fmt.Fprintf(a.out, "\nclosed to writes for a renumbering since %s, until %s at the latest\n", timeText(g.ClosedSinceMs), timeText(g.ClosedUntilMs))
		return err
	}
	if !g.RenumberingDue {
		return nil
	}
	_, err := fmt.Fprintf(a.out, "\nrenumbering is due: %d slots for %d members; start it with `laneway group renumber %s`\n", g.SlotHighWater, g.MemberCount, group)
	return err
}
