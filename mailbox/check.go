package mailbox

import (
	"fmt"
	"time"
)

// What every store refuses and decides alike, whatever it is made of.

// Check refuses a shard that a deployment of so many does not have.
func (n Shard) Check(shards int) error {
	if int64(n) >= int64(shards) {
		return fmt.Errorf("shard %d: the deployment has shards 0 to %d", n, shards-1)
	}
	return nil
}

// Check refuses what must never be written. Where the recipients belong is
// CheckPlacement's.
func (c *ChunkAppend) Check(shards int) error {
	t := c.Template
	if t == nil {
		return fmt.Errorf("%w: no template", ErrInvalidEntry)
	}
	if t.Seq != c.Ref.Seq || t.DispatchID != c.Ref.Dispatch {
		return fmt.Errorf("%w: the template is of dispatch %s at %s", ErrInvalidEntry, t.DispatchID, t.Seq)
	}
	if t.Seq.Epoch() == 0 {
		return fmt.Errorf("%w: seq %s is before every epoch", ErrSeqRange, t.Seq)
	}
	if c.Ref.Lane >= LaneCount {
		return fmt.Errorf("lane %d: lanes are 0 to %d", c.Ref.Lane, LaneCount-1)
	}
	if err := c.Ref.Shard.Check(shards); err != nil {
		return err
	}
	if err := CheckID("tenant_id", t.TenantID); err != nil {
		return err
	}
	group := 0 // at most, of any recipient
	for i := range t.Events() {
		group += t.Size(i, "") + MaxIDBytes + 1
	}
	known := uint8(1<<t.Events() - 1)
	for i := range c.Recipients {
		r := &c.Recipients[i]
		if err := CheckID("user_id", r.User); err != nil {
			return err
		}
		if r.Events == 0 || r.Events&^known != 0 {
			return fmt.Errorf("%w: a recipient with events %08b of a dispatch with %d", ErrInvalidEntry, r.Events, t.Events())
		}
		if group > MaxGroupBytes {
			if n := t.GroupSize(*r); n > MaxGroupBytes {
				return fmt.Errorf("%w: the event group of a recipient has %d bytes, at most %d are allowed", ErrGroupTooLarge, n, MaxGroupBytes)
			}
		}
	}
	return nil
}

// CheckPlacement refuses a chunk of another shard or lane than that of its
// users: W of the users' lane would pass entries that are not there. It looks at
// the first recipients, at most so many: the hash costs as much as encoding an
// entry, and all were placed by the same code.
func (c *ChunkAppend) CheckPlacement(shards, recipients int) error {
	for i := range min(recipients, len(c.Recipients)) {
		p := Place(User{Tenant: c.Template.TenantID, ID: c.Recipients[i].User}, shards)
		if p.Shard != c.Ref.Shard || p.Lane != c.Ref.Lane {
			return fmt.Errorf("a recipient belongs to shard %d lane %d, not to the chunk's", p.Shard, p.Lane)
		}
	}
	return nil
}

// CheckSampled is Check for item i of a batch, and CheckPlacement of one recipient
// where that costs little: for the first chunk of the batch and for larger ones.
func (c *ChunkAppend) CheckSampled(i, shards int) error {
	const from = 32
	if err := c.Check(shards); err != nil {
		return err
	}
	if i > 0 && len(c.Recipients) < from {
		return nil
	}
	return c.CheckPlacement(shards, 1)
}

// CheckCursor returns ErrCursorExpired when a cursor at after has missed entries.
func (b Bounds) CheckCursor(after Seq) error {
	if !b.Expired(after) {
		return nil
	}
	return fmt.Errorf("%w: the cursor is at %s, the mailbox was trimmed before %s and has lost what is up to %s", ErrCursorExpired, after, b.Trim, b.Gap)
}

// Check compares what a start asks for with what the store was made with.
func (d Deployment) Check(stored Deployment) error {
	for _, v := range []struct {
		name          string
		stored, asked int
	}{
		{"shard_count", stored.ShardCount, d.ShardCount},
		{"outbox_partition_count", stored.OutboxPartitions, d.OutboxPartitions},
		{"hash_version", stored.HashVersion, d.HashVersion},
	} {
		if v.stored != v.asked {
			return fmt.Errorf("%w: %s is %d in the configuration and %d in the store; it can never change: restore the setting, or use a new store", ErrDeploymentMismatch, v.name, v.asked, v.stored)
		}
	}
	return nil
}

// Fence makes the requested ownership of a shard in st, or returns ErrLeaseHeld.
// Asking again with the token that is current renews its lease and is the same
// ownership: the answer to a first request may have been lost.
func (st *ShardState) Fence(r *FenceRequest, now time.Time) error {
	if again := st.Token == r.Token && st.Epoch > 0 && r.LogEpoch <= st.Epoch; !again {
		if st.LeaseUntil.After(now) && st.Token != r.Token {
			return fmt.Errorf("%w: shard %d by %s until %s", ErrLeaseHeld, r.Shard, st.Owner, st.LeaseUntil.UTC().Format(time.RFC3339Nano))
		}
		epoch, err := NextEpoch(max(st.Epoch, r.LogEpoch))
		if err != nil {
			return fmt.Errorf("fence shard %d: %w", r.Shard, err)
		}
		st.Epoch = epoch
	}
	st.Token, st.Owner, st.Address = r.Token, r.Owner, r.Address
	st.LeaseUntil = now.Add(r.Lease)
	return nil
}

// RenewLease extends the lease from now. One that was released cannot be renewed;
// one that merely ran out, with nobody else fencing, can.
func (st *ShardState) RenewLease(now time.Time, lease time.Duration) error {
	if st.LeaseUntil.IsZero() {
		return fmt.Errorf("%w: the lease of shard %d was ended", ErrNotOwner, st.Shard)
	}
	st.LeaseUntil = now.Add(lease)
	return nil
}

// AddBoundary adds an EpochRecord's offset to the cached boundaries, and reports
// whether that changes them.
func (st *ShardState) AddBoundary(b Boundary) (bool, error) {
	if _, err := NewSeq(b.Epoch, b.Offset); err != nil {
		return false, err
	}
	var all Boundaries
	for _, known := range st.Boundaries {
		all.Add(known.Epoch, known.Offset)
	}
	changed := all.Add(b.Epoch, b.Offset)
	st.Boundaries = all.List()
	return changed, nil
}

// BegunDispatch is what a begun dispatch is compared by.
type BegunDispatch struct {
	Seq           Seq
	PayloadDigest Digest
	Unexpanded    bool
	Manifest      Manifest
}

// Again compares a dispatch that is begun again with what is known of it. It
// reports whether nothing is to be written: p says no more than is known.
func (g *BegunDispatch) Again(p *DispatchProgress) (known bool, err error) {
	switch {
	case g.Seq != p.Seq:
		return false, fmt.Errorf("%w: it began at %s, not at %s", ErrDispatchKnown, g.Seq, p.Seq)
	case g.PayloadDigest != p.PayloadDigest:
		return false, fmt.Errorf("%w: it began with payload digest %s", ErrManifestMismatch, g.PayloadDigest)
	case p.Unexpanded:
		return true, nil // what is known is as good or better
	case g.Unexpanded:
		return false, nil
	case !g.Manifest.Equal(&p.Manifest):
		return false, fmt.Errorf("%w: it began with %d entries in %d chunks, now %d in %d", ErrManifestMismatch,
			g.Manifest.Entries, g.Manifest.Chunks(), p.Manifest.Entries, p.Manifest.Chunks())
	}
	return true, nil
}
