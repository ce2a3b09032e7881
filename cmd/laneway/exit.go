package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
)

// Exit codes. They are part of the CLI's interface.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:
  0    done
  1    failed
  2    wrong flags, arguments, input or configuration; nothing was done
  3    no node answers at --server
  4    the node refused; the message begins with the stable reason
  130  interrupted before the work was done`

// usageError is wrong flags or arguments; inputError is wrong input, for which
// a command's help is no help.
type (
	usageError struct{ error }
	inputError struct{ error }
)

// unsettled is a command that ended before it knew what became of its work.
type unsettled struct {
	error
	next string
}

// Unwrap lets the cause be found.
func (e unsettled) Unwrap() error { return e.error }

// Unwrap lets the cause be found.
func (e inputError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func inputf(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// exit reports an error, with what to do next, and returns the exit code.
func (a *app) exit(ctx context.Context, command string, err error) int {
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.err, "interrupted")
		a.sayUnsettled(err)
		return exitInterrupted
	}
	fmt.Fprintf(a.err, "laneway: %v\n", err)
	var e *client.Error
	var bad *config.Error
	switch {
	case errors.As(err, &e):
		if next := a.next(e); next != "" {
			fmt.Fprintf(a.err, "Next: %s\n", next)
		}
		if e.Reason == client.Unreachable || e.Reason == client.NotLaneway {
			return exitUnreachable
		}
		return exitRefused
	case errors.As(err, &bad), errors.As(err, new(inputError)):
		return exitUsage
	case errors.As(err, new(usageError)), !a.started:
		fmt.Fprintf(a.err, "Next: %s --help\n", command)
		return exitUsage
	}
	a.sayUnsettled(err)
	return exitFailure
}

func (a *app) sayUnsettled(err error) {
	var e unsettled
	if errors.As(err, &e) {
		fmt.Fprintf(a.err, "Next: %s\n", e.next)
	}
}

// next says what a user can do about a refusal.
func (a *app) next(e *client.Error) string {
	switch e.Reason {
	case client.Unreachable:
		return "start a node with `laneway dev`, or name a running one with --server or LANEWAY_SERVER"
	case client.NotLaneway:
		return "something else listens there; check --server and LANEWAY_SERVER"
	case reason.CursorExpired:
		if e.OldestCursor != "" {
			return "entries after that position are gone (trimmed, or past the retention); go on with what is left: --cursor " + e.OldestCursor
		}
		return "entries after that position are gone; the client must rebuild its state"
	case reason.CursorInvalid:
		return "use the cursor as an earlier pull with the same --tenant and --user printed it, or none"
	case reason.RenumberingNotDue:
		return "leave the group as it is, or renumber it all the same with --force"
	case reason.GroupRenumbering:
		return "try again in a moment; `laneway group show` says until when the group is closed at the latest"
	case reason.GroupUnknown, reason.GroupEmpty:
		return "add members with `laneway group join GROUP USER…` or `laneway group import FILE --group GROUP`; check --tenant"
	case reason.FanoutQuotaExceeded:
		return "run the same command again with the same --client-message-id when that time is over; an operator raises quota.rate and quota.burst"
	case reason.ClientMessageReused:
		return "leave --client-message-id out, or choose a new one"
	case reason.ShardMoved, reason.LaneOpening, reason.ShuttingDown:
		return "`laneway shards` shows who owns the shard; try again"
	case reason.LaneRefused, reason.StoreFailed, reason.Internal:
		return "look at the node's log and at `laneway shards --lanes`"
	case reason.QuarantineUnknown:
		return "`laneway quarantine list` shows what there is"
	case reason.NotRetryable:
		return "send the message again under a new client_message_id, if it is wanted"
	case reason.RetentionRefused:
		return "if retention is off, set retention.versions and retention.replay_window and start the node again (docs/operations/retention.md); if not, `laneway check` says what does not fit together"
	case reason.EngineUnavailable:
		return "check that Temporal runs; mailboxes are served without it"
	case reason.LogUnavailable, reason.Unfinished, reason.Conflict, reason.StoreRecovering, reason.StoreUnavailable:
		return "run the same command again with the same --client-message-id; nothing is done twice"
	}
	return ""
}
