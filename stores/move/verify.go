package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/mailbox"
)

// Verify compares what to has with what from has, and copies what it lacks if
// asked to. It returns what it looked at, also with an error.
func Verify(ctx context.Context, from, to mailbox.Store, o Options) (Summary, error) {
	r := &run{Options: o.withDefaults(), from: from, to: to, owned: map[mailbox.Shard]mailbox.Ownership{}}
	stop := r.tell()
	err := r.all(ctx)
	stop()
	return r.counters.summary(), errors.Join(err, r.release(ctx))
}

// tellEvery is how often a long comparison says how far it is.
const tellEvery = 10 * time.Second

// tell logs how far the work is until it is stopped.
func (r *run) tell() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				s := r.counters.summary()
				r.Logger.Info("comparing", "mailboxes", s.Users, "entries", s.Entries, "dispatches", s.Dispatches, "client_messages", s.Committed,
					"membership_versions", s.Versions, "shards", s.Shards, "differences", s.Differences, "repaired", s.Repaired)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// CheckSource reports whether Verify would refuse the source, before there is a
// target.
func CheckSource(ctx context.Context, from mailbox.Store, o Options) error {
	r := &run{Options: o.withDefaults(), from: from}
	if err := r.sourceDeployment(ctx); err != nil {
		return err
	}
	_, err := r.source(ctx)
	return err
}

func (r *run) all(ctx context.Context) error {
	if err := r.sourceDeployment(ctx); err != nil {
		return err
	}
	known, err := r.targetDeployment(ctx)
	if err != nil {
		return err
	}
	before, err := r.begin(ctx)
	if err != nil {
		return err
	}
	// What is refused above leaves the target as it was.
	if !known {
		if err := r.lackingDeployment(ctx); err != nil {
			return err
		}
	}
	if r.Only != OnlyRest {
		if err := r.mailboxes(ctx); err != nil {
			return err
		}
	}
	if r.Only == OnlyMailboxes || r.Online && !r.Repair {
		return nil // the rest changes under the look
	}
	if err := r.rows(ctx); err != nil {
		return err
	}
	if err := r.shards(ctx); err != nil {
		return err
	}
	if r.Online {
		return nil
	}
	if err := r.layout(ctx); err != nil {
		return err
	}
	// Last, because it says that all of the above is there.
	if err := r.commitState(ctx); err != nil {
		return err
	}
	return r.unchanged(ctx, before)
}

// sourceDeployment is compared first: with other numbers nothing else has a
// meaning.
func (r *run) sourceDeployment(ctx context.Context) error {
	d, err := r.from.Deployment(ctx)
	switch {
	case errors.Is(err, mailbox.ErrNotFound):
		return fmt.Errorf("the source: %w: no node has ever used it; check its URL", ErrEmpty)
	case err != nil:
		return fmt.Errorf("the source: %w", err)
	case d != r.Deployment:
		return fmt.Errorf("%w: the source was made with %s, the configuration has %s", mailbox.ErrDeploymentMismatch, deploymentText(d), deploymentText(r.Deployment))
	}
	return nil
}

// targetDeployment reports whether the target has one, which is the source's then.
func (r *run) targetDeployment(ctx context.Context) (known bool, err error) {
	stored, err := r.to.Deployment(ctx)
	switch {
	case errors.Is(err, mailbox.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the target: %w", err)
	case stored != r.Deployment:
		return false, fmt.Errorf("%w: the source was made with %s, the target with %s; use a new target", mailbox.ErrDeploymentMismatch, deploymentText(r.Deployment), deploymentText(stored))
	}
	return true, nil
}

// lackingDeployment is the first difference from a target that is new.
func (r *run) lackingDeployment(ctx context.Context) error {
	diff := Difference{Kind: KindDeployment, From: deploymentText(r.Deployment)}
	if r.Repair {
		if err := r.to.EnsureDeployment(ctx, r.Deployment); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
		diff.Repaired = true
	}
	r.report(diff)
	return nil
}

func deploymentText(d mailbox.Deployment) string {
	return fmt.Sprintf("shards %d, outbox partitions %d, hash version %d", d.ShardCount, d.OutboxPartitions, d.HashVersion)
}

// begin checks that nothing moves, and that the source is whole. It returns the
// source's shards.
func (r *run) begin(ctx context.Context) ([]mailbox.ShardState, error) {
	states, err := r.source(ctx)
	for n := range states {
		target, err := r.to.LoadShard(ctx, mailbox.Shard(n))
		if err != nil {
			return nil, fmt.Errorf("the target: %w", err)
		}
		if err := served("target", &target, r.Clock()); err != nil {
			return nil, err
		}
	}
	return states, err
}

// source is begin without the target.
func (r *run) source(ctx context.Context) ([]mailbox.ShardState, error) {
	if r.Only == OnlyMailboxes || r.Online {
		return nil, nil
	}
	var states []mailbox.ShardState
	for n := range mailbox.Shard(r.Deployment.ShardCount) {
		st, err := r.from.LoadShard(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("the source: %w", err)
		}
		if err := served("source", &st, r.Clock()); err != nil {
			return nil, err
		}
		if st.Epoch > 0 && st.Incarnation != r.from.Incarnation() {
			return nil, fmt.Errorf("shard %d: %w: start a node on it, wait until it is ready, stop it, and try again", n, ErrTailLost)
		}
		states = append(states, st)
	}
	st, revision, err := r.from.LoadCommitState(ctx)
	if err != nil {
		return nil, fmt.Errorf("the source: %w", err)
	}
	if revision > 0 && (st.Incarnation != r.from.Incarnation() || st.Raising != 0) {
		return nil, fmt.Errorf("commits: %w: start a node on it, wait until it is ready, stop it, and try again", ErrTailLost)
	}
	return states, nil
}

func served(which string, st *mailbox.ShardState, now time.Time) error {
	if st.LeaseUntil.After(now) && st.Owner != ownerName {
		return fmt.Errorf("the %s: %w: %s owns shard %d until %s: stop the nodes, or compare while they run with --online", which, ErrServed, st.Owner, st.Shard, st.LeaseUntil.UTC().Format(time.RFC3339))
	}
	return nil
}

// unchanged checks that no node began to serve the source meanwhile.
func (r *run) unchanged(ctx context.Context, before []mailbox.ShardState) error {
	for _, was := range before {
		is, err := r.from.LoadShard(ctx, was.Shard)
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
		if is.Epoch != was.Epoch || is.Token != was.Token || is.Watermarks != was.Watermarks || is.Incarnation != was.Incarnation {
			return fmt.Errorf("the source: %w: shard %d changed while it was compared: stop the nodes and compare again", ErrServed, was.Shard)
		}
	}
	return nil
}

// parallel calls f for what a listing names, several at a time.
func parallel[T any](ctx context.Context, r *run, list func(context.Context, func(T) bool) error, f func(context.Context, T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Parallel)
	err := list(ctx, func(x T) bool {
		g.Go(func() error { return f(ctx, x) })
		return ctx.Err() == nil
	})
	// An error of f ends the listing by its context: f's is the cause.
	if failed := g.Wait(); failed != nil {
		return failed
	}
	return err
}
