package conversation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// answer is what a request answered, whatever its kind; Duplicate is not part
// of it.
type answer struct {
	commit CommitResult
	change MembershipResult
}

type request struct {
	conversation mailbox.Conversation
	sender, id   string
	do           func(ctx context.Context, s *Service) (answer, error)
}

func commitRequest(r CommitRequest) request {
	return request{r.Conversation, r.Sender, r.ClientMessageID, func(ctx context.Context, s *Service) (answer, error) {
		got, err := s.Commit(ctx, r)
		got.Duplicate = false
		return answer{commit: got}, err
	}}
}

func changeRequest(op string, r MembershipRequest) request {
	return request{mailbox.Conversation(r.Group), r.Actor, r.ClientMessageID, func(ctx context.Context, s *Service) (answer, error) {
		do := map[string]func(context.Context, MembershipRequest) (MembershipResult, error){"join": s.Join, "leave": s.Leave, "import": s.Import}[op]
		got, err := do(ctx, r)
		got.Duplicate = false
		return answer{change: got}, err
	}}
}

// renumberRequest closes a group and renumbers it, and begins again when it was
// opened meanwhile.
func renumberRequest(g, token string) request {
	r := RenumberRequest{Group: mailbox.Group{Tenant: "acme", ID: g}, Token: token, Force: true}
	return request{mailbox.Conversation(r.Group), renumberSender, token, func(ctx context.Context, s *Service) (answer, error) {
		for {
			_, done, err := s.CloseForRenumbering(ctx, r)
			if err != nil {
				return answer{}, err
			}
			if done == nil {
				got, err := s.RenumberGroup(ctx, r)
				if errors.Is(err, ErrRenumberingLost) {
					continue
				}
				if err != nil {
					return answer{}, err
				}
				done = &got
			}
			return answer{change: MembershipResult{
				Generation: done.Generation, Version: done.Version, ConversationSeq: done.ConversationSeq,
				CommittedAt: done.CommittedAt, MemberCount: done.MemberCount,
			}}, nil
		}
	}}
}

// script passes through every kind of step.
func script() []request {
	return []request{
		changeRequest("join", change("g", "j1", "ann", "bob")),
		commitRequest(groupMessage("g", "ann", "m1")),
		changeRequest("import", change("g", "i1", manyUsers(20)...)), // in a blob
		changeRequest("join", change("g", "j2", "ann")),              // nothing changes
		changeRequest("leave", change("g", "l1", "bob", "user-000003")),
		commitRequest(groupMessage("g", "ann", "m2")),
		changeRequest("join", change("g", "j3", "bob", "cyd")),
	}
}

// Every call to the outside that the script makes is tried with every fault:
// dying before or after it, with and without losing what was not synced, and
// losing the call or its answer. The client repeats what failed. In the end all
// is as if nothing had happened, and the second answers are the first.
func TestEveryStepCanFail(t *testing.T) { everyStepFails(t, script(), 6, 35) }

// everyStepFails carries out a script of so many records, which makes more than
// some calls, once for every call and fault.
func everyStepFails(t *testing.T, script []request, records uint64, more int) {
	var calls int
	{
		d := newPowered(t, t.Context())
		p := startProcess(t, d.deployment, nil)
		for _, r := range script {
			_, err := r.do(t.Context(), p.serve)
			require.NoError(t, err)
		}
		calls = p.calls
		d.close()
	}
	require.Greater(t, calls, more)
	for call := 1; call <= calls; call++ {
		for what := crashBefore; what < faultCount; what++ {
			for _, power := range []bool{false, true} {
				if power && what != crashBefore && what != crashAfter {
					continue
				}
				failStep(t, script, records, call, what, power, call%2 == 0)
			}
		}
	}
}

func failStep(t *testing.T, script []request, records uint64, call int, what fault, power, sweep bool) {
	d := newPowered(t, t.Context())
	defer d.close()
	at := ""
	p := startProcess(t, d.deployment, func(n int, op string) fault {
		if n == call {
			at = op
			return what
		}
		return noFault
	})
	answers := make([]answer, len(script))
	for i, r := range script {
		for attempt := 0; ; attempt++ {
			name := fmt.Sprintf("call %d (%s): %s, power loss %v: request %d", call, at, faultNames[what], power, i)
			require.Less(t, attempt, 3, name)
			got, err := r.do(t.Context(), p.serve)
			if err == nil {
				answers[i] = got
				break
			}
			require.True(t, errors.Is(err, errCrashed) || errors.Is(err, errLost) || errors.Is(err, mailbox.ErrOutcomeUnknown), "%s: %v", name, err)
			if p.crashed() {
				if power {
					d.fail(t, vfs.CrashCloneCfg{})
				}
				p = startProcess(t, d.deployment, nil)
				if sweep {
					require.NoError(t, p.serve.Sweep(t.Context()))
				}
			}
		}
	}
	// The power fails once more at the end: everything that was answered stays.
	p.kill()
	d.fail(t, vfs.CrashCloneCfg{})
	p = startProcess(t, d.deployment, nil)
	require.NoError(t, p.serve.Sweep(t.Context()))
	for i, r := range script {
		got, err := r.do(t.Context(), p.serve)
		require.NoError(t, err)
		require.Equal(t, answers[i], got, "call %d (%s): %s: request %d answers something else", call, at, faultNames[what], i)
	}
	k := newChecker(t, d.deployment)
	k.conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
	require.Equal(t, records, k.last, "call %d (%s): %s", call, at, faultNames[what])
	pending := 0
	require.NoError(t, d.store.PendingHeads(t.Context(), func(mailbox.Conversation) bool { pending++; return true }))
	require.Zero(t, pending)
}

// The answer "nothing changed" has no pending record behind it: whoever gives it,
// also a second time, has synced it first. (Found by the simulation.)
func TestNothingChangedOutlivesThePower(t *testing.T) {
	d := newPowered(t, t.Context())
	defer d.close()
	p := startProcess(t, d.deployment, nil)
	_, err := p.serve.Join(t.Context(), change("g", "j1", "ann"))
	require.NoError(t, err)
	rows := 0
	p = startProcess(t, d.deployment, func(_ int, op string) fault {
		if op == "write look-up row" {
			rows++
		}
		if op == "decide" {
			return crashBefore // the row is written and not synced
		}
		return noFault
	})
	_, err = p.serve.Join(t.Context(), change("g", "j2", "ann"))
	require.ErrorIs(t, err, errCrashed)
	require.Equal(t, 1, rows)
	p = startProcess(t, d.deployment, nil)
	first, err := p.serve.Join(t.Context(), change("g", "j2", "ann"))
	require.NoError(t, err)
	require.Zero(t, first.Changed)
	d.fail(t, vfs.CrashCloneCfg{})
	p = startProcess(t, d.deployment, nil)
	_, err = p.serve.Leave(t.Context(), change("g", "l1", "ann"))
	require.NoError(t, err)
	again, err := p.serve.Join(t.Context(), change("g", "j2", "ann"))
	require.NoError(t, err)
	require.Equal(t, first, again)
}

// A pending record that another process left is finished before anything later,
// by bytes that are its own.
func TestNextRequestFinishesWhatAnotherProcessLeft(t *testing.T) {
	for _, at := range []string{"write version", "publish", "write look-up row", "clear"} {
		t.Run(at, func(t *testing.T) {
			d := newPowered(t, t.Context())
			defer d.close()
			p := startProcess(t, d.deployment, func(_ int, op string) fault {
				if op == at {
					return crashBefore
				}
				return noFault
			})
			_, err := p.serve.Import(t.Context(), change("g", "i1", manyUsers(30)...))
			require.ErrorIs(t, err, errCrashed)
			other := startProcess(t, d.deployment, nil)
			m, err := other.serve.Commit(t.Context(), groupMessage("g", "ann", "m1"))
			require.NoError(t, err)
			require.Equal(t, uint64(2), m.ConversationSeq)
			i, err := other.serve.Import(t.Context(), change("g", "i1", manyUsers(30)...))
			require.NoError(t, err)
			require.True(t, i.Duplicate)
			require.Equal(t, uint32(30), i.Changed)
			newChecker(t, d.deployment).conversation(mailbox.Conversation{Tenant: "acme", ID: "g"})
		})
	}
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x1a9e)) }
