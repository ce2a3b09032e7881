package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func testDeployment(t *testing.T, open Open) {
	d := mailbox.Deployment{ShardCount: shards, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}
	clause(t, open, "WrittenOnFirstStart", func(f *fixture) {
		require.NoError(f.t, f.Store.EnsureDeployment(f.ctx, d))
		require.NoError(f.t, f.Store.EnsureDeployment(f.ctx, d))
		f.reopen()
		require.NoError(f.t, f.Store.EnsureDeployment(f.ctx, d))
	})
	clause(t, open, "OtherValuesAreRefusedAndBothAreNamed", func(f *fixture) {
		require.NoError(f.t, f.Store.EnsureDeployment(f.ctx, d))
		f.reopen()
		for _, change := range []struct {
			name          string
			alter         func(d *mailbox.Deployment)
			stored, asked string
		}{
			{"shard_count", func(d *mailbox.Deployment) { d.ShardCount = 77 }, itoa(shards), "77"},
			{"outbox_partition_count", func(d *mailbox.Deployment) { d.OutboxPartitions = 78 }, "8", "78"},
			{"hash_version", func(d *mailbox.Deployment) { d.HashVersion = 79 }, itoa(mailbox.HashVersion), "79"},
		} {
			other := d
			change.alter(&other)
			err := f.Store.EnsureDeployment(f.ctx, other)
			require.ErrorIs(f.t, err, mailbox.ErrDeploymentMismatch)
			require.ErrorContains(f.t, err, change.name)
			require.ErrorContains(f.t, err, change.stored)
			require.ErrorContains(f.t, err, change.asked)
		}
		require.NoError(f.t, f.Store.EnsureDeployment(f.ctx, d), "a refused start changes nothing")
	})
}

func testOwnership(t *testing.T, open Open) {
	fence := func(f *fixture, token byte, log mailbox.Epoch, lease time.Duration) (mailbox.Ownership, error) {
		return f.Store.Fence(f.ctx, mailbox.FenceRequest{Shard: 1, LogEpoch: log, Token: mailbox.Token{token}, Owner: "node-" + itoa(int(token)), Address: "host:1", Lease: lease})
	}
	must := func(f *fixture, token byte, log mailbox.Epoch, lease time.Duration) mailbox.Ownership {
		f.t.Helper()
		own, err := fence(f, token, log, lease)
		require.NoError(f.t, err)
		return own
	}
	load := func(f *fixture) mailbox.ShardState {
		f.t.Helper()
		st, err := f.Store.LoadShard(f.ctx, 1)
		require.NoError(f.t, err)
		return st
	}
	clause(t, open, "NeverOwnedShardHasEpochZero", func(f *fixture) {
		require.Equal(f.t, mailbox.ShardState{Shard: 1}, load(f))
	})
	clause(t, open, "FirstEpochIsOne", func(f *fixture) {
		require.Equal(f.t, mailbox.Ownership{Shard: 1, Epoch: 1, Token: mailbox.Token{7}}, must(f, 7, 0, time.Minute))
		st := load(f)
		require.Equal(f.t, mailbox.Epoch(1), st.Epoch)
		require.Equal(f.t, mailbox.Token{7}, st.Token)
		require.Equal(f.t, "node-7", st.Owner)
		require.Equal(f.t, "host:1", st.Address)
		require.True(f.t, st.LeaseUntil.Equal(Start.Add(time.Minute)))
	})
	clause(t, open, "FenceKeepsTheStoresIncarnation", func(f *fixture) {
		own := must(f, 1, 0, 0)
		made := f.Store.Incarnation()
		require.Equal(f.t, made, load(f).Incarnation)
		require.NoError(f.t, f.Store.PutBoundary(f.ctx, own, mailbox.Boundary{Epoch: 1, Offset: 1}))
		f.reopen()
		require.Equal(f.t, made, f.Store.Incarnation(), "the server ran on")
		require.Equal(f.t, made, load(f).Incarnation)
		f.crash()
		require.Equal(f.t, made, load(f).Incarnation, "of the time of the fence")
		must(f, 2, 0, 0)
		require.Equal(f.t, f.Store.Incarnation(), load(f).Incarnation)
	})
	clause(t, open, "EpochIsMaxOfStoreAndLogPlusOne", func(f *fixture) {
		require.Equal(f.t, mailbox.Epoch(6), must(f, 1, 5, 0).Epoch, "the log is ahead")
		require.Equal(f.t, mailbox.Epoch(7), must(f, 2, 3, 0).Epoch, "the store is ahead")
		require.Equal(f.t, mailbox.Epoch(8), must(f, 3, 7, 0).Epoch, "both agree")
	})
	clause(t, open, "EpochsEndWithoutWrapping", func(f *fixture) {
		require.Equal(f.t, mailbox.Epoch(mailbox.MaxEpoch), must(f, 1, mailbox.MaxEpoch-1, 0).Epoch)
		_, err := fence(f, 2, 0, 0)
		require.ErrorIs(f.t, err, mailbox.ErrSeqRange)
		require.Equal(f.t, mailbox.Token{1}, load(f).Token)
	})
	clause(t, open, "LiveLeaseIsNeverTaken", func(f *fixture) {
		own := must(f, 1, 0, time.Minute)
		f.clock.Add(time.Minute - time.Millisecond)
		_, err := fence(f, 2, 0, time.Minute)
		require.ErrorIs(f.t, err, mailbox.ErrLeaseHeld)
		require.Equal(f.t, own.Token, load(f).Token)
		f.clock.Add(time.Millisecond)
		require.Equal(f.t, mailbox.Epoch(2), must(f, 2, 0, time.Minute).Epoch)
	})
	clause(t, open, "RepeatedFenceOfOneTokenIsOneOwnership", func(f *fixture) {
		own := must(f, 1, 0, time.Minute)
		require.Equal(f.t, own, must(f, 1, 0, time.Minute), "the first answer may have been lost")
	})
	clause(t, open, "RenewalExtendsTheLeaseFromNow", func(f *fixture) {
		own := must(f, 1, 0, time.Minute)
		f.clock.Add(40 * time.Second)
		require.NoError(f.t, f.Store.RenewLease(f.ctx, own, time.Minute))
		require.True(f.t, load(f).LeaseUntil.Equal(f.clock.Now().Add(time.Minute)))
		f.clock.Add(50 * time.Second)
		_, err := fence(f, 2, 0, time.Minute)
		require.ErrorIs(f.t, err, mailbox.ErrLeaseHeld)
	})
	clause(t, open, "ReleaseEndsTheLeaseAtOnce", func(f *fixture) {
		own := must(f, 1, 0, time.Hour)
		require.NoError(f.t, f.Store.ReleaseLease(f.ctx, own))
		require.NoError(f.t, f.Store.ReleaseLease(f.ctx, own))
		st := load(f)
		require.Equal(f.t, own.Epoch, st.Epoch, "epoch and token stay current until the next fence")
		require.Equal(f.t, own.Token, st.Token)
		require.False(f.t, st.LeaseUntil.After(f.clock.Now()))
		require.Equal(f.t, mailbox.Epoch(2), must(f, 2, 0, time.Minute).Epoch)
	})
	clause(t, open, "ReleasedLeaseCannotBeRenewed", func(f *fixture) {
		own := must(f, 1, 0, time.Hour)
		require.NoError(f.t, f.Store.ReleaseLease(f.ctx, own))
		require.ErrorIs(f.t, f.Store.RenewLease(f.ctx, own, time.Hour), mailbox.ErrNotOwner)
	})
	clause(t, open, "FencedOwnerIsRefusedEverywhere", func(f *fixture) {
		own := must(f, 1, 0, 0)
		p := progressOf(seq(1), lanes(3, 1))
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}, Frontier: seq(1)}))
		next := must(f, 2, 0, time.Hour)
		otherToken, otherEpoch := next, next
		otherToken.Token = own.Token
		otherEpoch.Epoch++
		before := load(f)
		for name, bad := range map[string]mailbox.Ownership{"fenced": own, "same epoch, other token": otherToken, "epoch never given": otherEpoch, "none": {Shard: 1}} {
			require.ErrorIs(f.t, f.Store.Begin(f.ctx, bad, mailbox.BeginBatch{Frontier: seq(9)}), mailbox.ErrNotOwner, name)
			_, err := f.Store.MarkChunks(f.ctx, bad, []mailbox.Durable{durable(1, p, 3, 0)})
			require.ErrorIs(f.t, err, mailbox.ErrNotOwner, name)
			from, to := &mailbox.Watermarks{}, &mailbox.Watermarks{F: seq(1)}
			to.W[0] = seq(1)
			require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, bad, from, to), mailbox.ErrNotOwner, name)
			require.ErrorIs(f.t, f.Store.PutBoundary(f.ctx, bad, mailbox.Boundary{Epoch: 1, Offset: 1}), mailbox.ErrNotOwner, name)
			require.ErrorIs(f.t, f.Store.RenewLease(f.ctx, bad, time.Hour), mailbox.ErrNotOwner, name)
			require.ErrorIs(f.t, f.Store.ReleaseLease(f.ctx, bad), mailbox.ErrNotOwner, name)
		}
		require.Equal(f.t, before, load(f))
		got, err := f.Store.LookupDispatches(f.ctx, 1, []mailbox.DispatchID{p.Dispatch})
		require.NoError(f.t, err)
		require.False(f.t, got[0].Marks.Has(0), "a refused mark")
	})
	clause(t, open, "OneOfManyFencesWins", func(f *fixture) {
		var wg sync.WaitGroup
		results := make([]error, 8)
		for i := range results {
			wg.Go(func() { _, results[i] = fence(f, byte(i+1), 0, time.Hour) })
		}
		wg.Wait()
		won := 0
		for _, err := range results {
			if err == nil {
				won++
			} else {
				require.ErrorIs(f.t, err, mailbox.ErrLeaseHeld)
			}
		}
		require.Equal(f.t, 1, won)
		require.Equal(f.t, mailbox.Epoch(1), load(f).Epoch)
	})
	clause(t, open, "ShardsAreSeparate", func(f *fixture) {
		must(f, 1, 0, time.Hour)
		st, err := f.Store.LoadShard(f.ctx, 2)
		require.NoError(f.t, err)
		require.Zero(f.t, st.Epoch)
		require.Equal(f.t, mailbox.Epoch(1), f.own(2, 9).Epoch)
		_, err = f.Store.LoadShard(f.ctx, shards)
		require.Error(f.t, err, "a shard that the deployment does not have")
	})
	clause(t, open, "BoundariesAreCachedForReaders", func(f *fixture) {
		own := must(f, 1, 0, 0)
		require.NoError(f.t, f.Store.PutBoundary(f.ctx, own, mailbox.Boundary{Epoch: 1, Offset: 4}))
		require.NoError(f.t, f.Store.PutBoundary(f.ctx, own, mailbox.Boundary{Epoch: 1, Offset: 4}))
		own = must(f, 2, 0, 0)
		require.NoError(f.t, f.Store.PutBoundary(f.ctx, own, mailbox.Boundary{Epoch: 2, Offset: 9}))
		want := []mailbox.Boundary{{Epoch: 1, Offset: 4}, {Epoch: 2, Offset: 9}}
		require.Equal(f.t, want, load(f).Boundaries)
		require.NoError(f.t, f.Store.PutBoundary(f.ctx, own, mailbox.Boundary{Epoch: 1, Offset: 11}), "a late record of a smaller epoch changes nothing")
		require.Equal(f.t, want, load(f).Boundaries)
		f.reopen()
		require.Equal(f.t, want, load(f).Boundaries)
	})
	clause(t, open, "EpochAndTokenAreDurable", func(f *fixture) {
		own := must(f, 1, 4, time.Hour)
		f.reopen()
		require.Equal(f.t, own.Epoch, load(f).Epoch)
		require.NoError(f.t, f.Store.ReleaseLease(f.ctx, own))
		own = must(f, 2, 0, 0)
		f.crash()
		st := load(f)
		require.Equal(f.t, own.Epoch, st.Epoch)
		require.Equal(f.t, own.Token, st.Token)
		require.Equal(f.t, own.Epoch+1, must(f, 3, 0, 0).Epoch, "no epoch is given twice")
	})
}

func testWatermark(t *testing.T, open Open) {
	load := func(f *fixture) mailbox.Watermarks {
		f.t.Helper()
		st, err := f.Store.LoadShard(f.ctx, 0)
		require.NoError(f.t, err)
		return st.Watermarks
	}
	advanced := func(from mailbox.Watermarks, frontier mailbox.Seq, w map[mailbox.Lane]mailbox.Seq) mailbox.Watermarks {
		from.F = frontier
		for lane, s := range w {
			from.W[lane], from.Floor[lane] = s, s
		}
		return from
	}
	clause(t, open, "StartsBeforeEverything", func(f *fixture) {
		require.Equal(f.t, mailbox.Watermarks{}, load(f))
		w, err := f.Store.LaneWatermark(f.ctx, 0, 63)
		require.NoError(f.t, err)
		require.Equal(f.t, mailbox.LaneWatermark{}, w)
		_, err = f.Store.LaneWatermark(f.ctx, 0, 64)
		require.Error(f.t, err)
	})
	clause(t, open, "FloorOfAChangedLaneIsItsWAndFMovesWithIt", func(f *fixture) {
		own := f.own(0, 1)
		from := load(f)
		to := advanced(from, seq(9), map[mailbox.Lane]mailbox.Seq{2: seq(5), 63: seq(9)})
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &from, &to))
		require.Equal(f.t, to, load(f))
		w, err := f.Store.LaneWatermark(f.ctx, 0, 2)
		require.NoError(f.t, err)
		require.Equal(f.t, mailbox.LaneWatermark{W: seq(5), Floor: seq(5)}, w)
		f.reopen()
		require.Equal(f.t, to, load(f))
	})
	clause(t, open, "CompareAndSetFromTheCurrentW", func(f *fixture) {
		own := f.own(0, 1)
		zero := load(f)
		a := advanced(zero, seq(5), map[mailbox.Lane]mailbox.Seq{0: seq(5)})
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &a))
		b := advanced(zero, seq(6), map[mailbox.Lane]mailbox.Seq{1: seq(6)})
		require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &b), mailbox.ErrWatermarkConflict)
		require.Equal(f.t, a, load(f))
	})
	clause(t, open, "RepeatedCommitIsOneCommit", func(f *fixture) {
		own := f.own(0, 1)
		zero := load(f)
		a := advanced(zero, seq(5), map[mailbox.Lane]mailbox.Seq{0: seq(5), 9: seq(4)})
		b := advanced(a, seq(7), map[mailbox.Lane]mailbox.Seq{0: seq(7)})
		for range 2 {
			require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &a), "the first answer may have been lost")
			require.Equal(f.t, a, load(f))
		}
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &a, &b))
		require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &a), mailbox.ErrWatermarkConflict, "W has moved on since")
		require.Equal(f.t, b, load(f))
		part := advanced(zero, seq(7), map[mailbox.Lane]mailbox.Seq{0: seq(7)})
		require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &part), mailbox.ErrWatermarkConflict, "another lane moved: it is not this commit that stands")
	})
	clause(t, open, "NeverGoesBackwards", func(f *fixture) {
		own := f.own(0, 1)
		zero := load(f)
		a := advanced(zero, seq(5), map[mailbox.Lane]mailbox.Seq{0: seq(5)})
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &a))
		back := advanced(a, seq(5), map[mailbox.Lane]mailbox.Seq{0: seq(4), 1: seq(5)})
		require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, own, &a, &back), mailbox.ErrWatermarkConflict)
		require.Equal(f.t, a, load(f), "all lanes or none")
	})
	clause(t, open, "NeverAboveTheDurableFrontier", func(f *fixture) {
		own := f.own(0, 1)
		zero := load(f)
		over := advanced(zero, seq(5), map[mailbox.Lane]mailbox.Seq{0: seq(6)})
		require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &over), mailbox.ErrWatermarkConflict)
		require.Equal(f.t, zero, load(f))
	})
	clause(t, open, "FrontierOfBeginNeverGoesBack", func(f *fixture) {
		own := f.own(0, 1)
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Frontier: seq(7)}))
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Frontier: seq(3)}))
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{}))
		require.Equal(f.t, seq(7), load(f).F)
		// The committer took F before Begin moved it.
		zero := mailbox.Watermarks{}
		to := advanced(zero, seq(4), map[mailbox.Lane]mailbox.Seq{0: seq(4)})
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &to))
		require.Equal(f.t, seq(7), load(f).F)
		f.reopen()
		require.Equal(f.t, seq(7), load(f).F)
	})
	clause(t, open, "DurableWhenItReturnsWithAllBeforeIt", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(3, 2))
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{
			Progress: []mailbox.DispatchProgress{p}, Frontier: seq(1),
			Fences: []mailbox.FenceRow{{Conversation: conversation, Base: 4}},
		}))
		_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, p, 3, 0), durable(0, p, 3, 1)})
		require.NoError(f.t, err)
		zero := mailbox.Watermarks{}
		to := advanced(zero, seq(1), map[mailbox.Lane]mailbox.Seq{3: seq(1)})
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &to))
		f.crash()
		require.Equal(f.t, to, load(f))
		got, err := f.Store.LookupDispatches(f.ctx, 0, []mailbox.DispatchID{p.Dispatch})
		require.NoError(f.t, err)
		require.True(f.t, got[0].Complete(), "the marks that W relies on")
		rows, err := f.Store.LoadFences(f.ctx, 0, []mailbox.Conversation{conversation})
		require.NoError(f.t, err)
		require.Len(f.t, rows, 1)
	})
	clause(t, open, "NextOwnerGoesOnFromIt", func(f *fixture) {
		own := f.own(0, 1)
		zero := mailbox.Watermarks{}
		a := advanced(zero, seq(5), map[mailbox.Lane]mailbox.Seq{0: seq(5)})
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, own, &zero, &a))
		next := f.takeOver(own, 2)
		b := advanced(a, seqAt(2, 6), map[mailbox.Lane]mailbox.Seq{0: seqAt(2, 6)})
		require.ErrorIs(f.t, f.Store.CommitWatermarks(f.ctx, own, &a, &b), mailbox.ErrNotOwner)
		require.NoError(f.t, f.Store.CommitWatermarks(f.ctx, next, &a, &b))
		require.Equal(f.t, b, load(f))
	})
	clause(t, open, "OneOfManyCommitsWins", func(f *fixture) {
		own := f.own(0, 1)
		var wg sync.WaitGroup
		results := make([]error, 8)
		for i := range results {
			wg.Go(func() {
				zero := mailbox.Watermarks{}
				to := advanced(zero, seq(99), map[mailbox.Lane]mailbox.Seq{mailbox.Lane(i): seq(9)})
				results[i] = f.Store.CommitWatermarks(f.ctx, own, &zero, &to)
			})
		}
		wg.Wait()
		won := 0
		for _, err := range results {
			if err == nil {
				won++
			} else {
				require.True(f.t, errors.Is(err, mailbox.ErrWatermarkConflict), err)
			}
		}
		require.Equal(f.t, 1, won)
	})
}
