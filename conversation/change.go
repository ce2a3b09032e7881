package conversation

import (
	"context"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// slotBatch is how many users' slots are read at a time.
const slotBatch = 5_000

// Join adds users to a group, which the first join makes. The join is dispatched
// to the version that contains the joiners.
func (s *Service) Join(ctx context.Context, r MembershipRequest) (MembershipResult, error) {
	return s.change(ctx, r, logv1.MembershipKind_MEMBERSHIP_KIND_JOIN)
}

// Leave removes users from a group. The leave is dispatched to the version that
// still contains the leavers.
func (s *Service) Leave(ctx context.Context, r MembershipRequest) (MembershipResult, error) {
	return s.change(ctx, r, logv1.MembershipKind_MEMBERSHIP_KIND_LEAVE)
}

// Import adds many users as one change: one version, one dispatch. Invalid or
// repeated users are refused by position (UsersError) and nothing is applied.
func (s *Service) Import(ctx context.Context, r MembershipRequest) (MembershipResult, error) {
	return s.change(ctx, r, logv1.MembershipKind_MEMBERSHIP_KIND_IMPORT)
}

func (s *Service) change(ctx context.Context, r MembershipRequest, kind logv1.MembershipKind) (MembershipResult, error) {
	if err := r.check(s.limits); err != nil {
		return MembershipResult{}, err
	}
	c := mailbox.Conversation(r.Group)
	key := r.key(kind)
	var before, after head
	row, duplicate, err := s.run(ctx, c, key, func(st *state) (*plan, error) {
		p, err := s.planChange(ctx, st, &r, kind, key)
		if err == nil && p.unchanged == nil {
			before, after = st.head, p.next
		}
		return p, err
	})
	if err != nil {
		return MembershipResult{}, err
	}
	if !duplicate {
		s.propose(r.Group, &before, &after)
	}
	r.progress(StagePublish, len(r.Users))
	return MembershipResult{
		Generation:      row.GetGeneration(),
		Version:         row.GetMembershipVersion(),
		ConversationSeq: row.GetConversationSeq(),
		CommittedAt:     row.GetCommittedAtMs(),
		MemberCount:     row.GetMemberCount(),
		Changed:         row.GetChanged(),
		Duplicate:       duplicate,
	}, nil
}

func (s *Service) planChange(ctx context.Context, st *state, r *MembershipRequest, kind logv1.MembershipKind, key messageKey) (*plan, error) {
	leave := kind == logv1.MembershipKind_MEMBERSHIP_KIND_LEAVE
	next := st.head
	switch {
	case next.exists() && next.kind != logv1.ConversationKind_CONVERSATION_KIND_GROUP:
		return nil, fmt.Errorf("%w: conversation %q is a SINGLE", ErrKindMismatch, r.Group.ID)
	case !next.exists() && leave:
		return nil, fmt.Errorf("%w: %q", ErrGroupUnknown, r.Group.ID)
	case !next.exists():
		next.kind = logv1.ConversationKind_CONVERSATION_KIND_GROUP
		next.generation = 1
	}
	if err := s.admit(st); err != nil {
		return nil, err
	}
	if _, err := fence(&st.head, r.FencingEpoch); err != nil {
		return nil, err
	}
	base, err := s.base(ctx, st, next.current(r.Group), &next.digest, r.Users)
	if err != nil {
		return nil, err
	}
	latest, err := s.latestSlots(ctx, base, r)
	if err != nil {
		return nil, err
	}
	seq := st.head.seq + 1
	changes, err := membership.Plan(base, leave, r.Users, latest, seq)
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return &plan{unchanged: &statev1.CommittedMessage{
			Generation: next.generation, MembershipVersion: next.version, MemberCount: next.members, RequestDigest: key.digest[:],
		}}, nil
	}
	if n := int(next.members) + len(changes); !leave && n > s.limits.GroupMembers {
		return nil, fmt.Errorf("%w: %d of at most %d", ErrTooManyMembers, n, s.limits.GroupMembers)
	}
	r.progress(StagePlan, 0)
	version, err := membership.Apply(base, next.version+1, seq, changes)
	if err != nil {
		return nil, err
	}
	change, err := s.describe(ctx, version.Version, changes)
	if err != nil {
		return nil, err
	}
	payload, err := deterministic.Marshal(&logv1.MembershipPayload{Kind: kind, FirstSubject: changes[0].User, Count: uint32(len(changes))})
	if err != nil {
		return nil, fmt.Errorf("encode a membership payload: %w", err)
	}
	before := next.audience(r.Group.ID)
	v := version.Version
	next.take(v)
	audience := next.audience(r.Group.ID)
	if leave {
		audience = before
	}
	rec := &logv1.OutboxRecord{
		Audience:         &logv1.OutboxRecord_Group{Group: audience},
		Events:           []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MEMBERSHIP, Payload: payload}},
		MembershipChange: change,
	}
	p, err := s.seal(st, next, rec, key, "", r.FencingEpoch, &statev1.CommittedMessage{
		Generation: v.Generation, MembershipVersion: v.Version, MemberCount: v.MemberCount, Changed: uint32(len(changes)),
	})
	if err != nil {
		return nil, err
	}
	p.version = version
	// A leave is charged and never refused: whoever has to be out of a group is
	// out, also while somebody floods it.
	if p.cost, p.must = int(next.members), leave; leave {
		p.cost = int(st.head.members)
	}
	r.progress(StageWrite, 0)
	return p, nil
}

// base makes the state hold version id, with at least the bitmaps that a change
// of these users needs, and returns it. In a group whose changes all pass
// through this process nothing is read. digest is what the head or a record
// froze; nil when the caller proves the version in another way.
func (s *Service) base(ctx context.Context, st *state, id mailbox.GroupVersion, digest *mailbox.Digest, users []string) (membership.Base, error) {
	b := membership.Base{Group: id.Group, Generation: id.Generation, ShardCount: s.cfg.ShardCount}
	if id.Version == 0 {
		st.version, st.bitmaps = nil, nil
		return b, nil
	}
	v := st.version
	if v == nil || v.GroupVersion != id || (digest != nil && v.Digest() != *digest) {
		var err error
		if v, err = s.rows.Version(ctx, id); err != nil {
			return b, err
		}
		if digest != nil && v.Digest() != *digest {
			return b, fmt.Errorf("%w: the manifest of group %q/%q version %d has the digest %s, the head says %s",
				mailbox.ErrCorrupt, id.Tenant, id.ID, id.Version, v.Digest(), digest)
		}
		st.version, st.bitmaps = v, make(map[mailbox.Shard]*membership.Bitmap)
	}
	for _, shard := range membership.ShardsOf(id.Tenant, users, s.cfg.ShardCount) {
		if st.bitmaps[shard] != nil {
			continue
		}
		bm, err := s.rows.Bitmap(ctx, v, shard)
		if err != nil {
			return b, err
		}
		if bm != nil {
			st.bitmaps[shard] = bm
		}
	}
	b.Current, b.Bitmaps = v, st.bitmaps
	return b, nil
}

// latestSlots reads who had which slot last.
func (s *Service) latestSlots(ctx context.Context, b membership.Base, r *MembershipRequest) ([]mailbox.DirectoryRow, error) {
	if b.Current == nil {
		return nil, nil
	}
	out := make([]mailbox.DirectoryRow, 0, len(r.Users))
	for len(out) < len(r.Users) {
		r.progress(StageSlots, len(out))
		part := r.Users[len(out):min(len(out)+slotBatch, len(r.Users))]
		rows, err := s.cfg.Members.LatestSlots(ctx, b.Group, b.Generation, part)
		if err != nil {
			return nil, fmt.Errorf("read the slots of group %q/%q: %w", b.Group.Tenant, b.Group.ID, err)
		}
		if len(rows) != len(part) {
			return nil, fmt.Errorf("%w: %d slot rows for %d users of group %q/%q", mailbox.ErrCorrupt, len(rows), len(part), b.Group.Tenant, b.Group.ID)
		}
		out = append(out, rows...)
	}
	return out, nil
}

// describe states a change for its record; a large one goes to a blob that is
// on disk before the head can refer to it.
func (s *Service) describe(ctx context.Context, v *membership.Version, changes []membership.SlotChange) (*logv1.MembershipChange, error) {
	digest := v.Digest()
	m := &logv1.MembershipChange{GroupId: v.ID, Generation: v.Generation, MembershipVersion: v.Version, ManifestDigest: digest[:]}
	data := membership.EncodeChanges(changes)
	if len(data) <= s.limits.InlineChangeBytes {
		m.Changes = membership.ChangesToProto(changes)
		return m, nil
	}
	d := mailbox.Sum(data)
	// The name holds the content's digest: a plan that loses the race for the
	// version never overwrites the winner's.
	m.Blob, m.BlobDigest = fmt.Sprintf("%schange-%x", membership.BlobPrefix(v.GroupVersion), d[:16]), d[:]
	if err := s.cfg.Blobs.Put(ctx, m.Blob, data); err != nil {
		return nil, fmt.Errorf("keep a membership change: %w", err)
	}
	return m, nil
}

// changesOf reads the content of a record's change.
func (s *Service) changesOf(ctx context.Context, m *logv1.MembershipChange) ([]membership.SlotChange, error) {
	if m.GetBlob() == "" {
		return membership.ChangesFromProto(m.GetChanges()), nil
	}
	if len(m.GetBlobDigest()) != len(mailbox.Digest{}) {
		return nil, fmt.Errorf("%w: blob %s without a digest", mailbox.ErrCorrupt, m.GetBlob())
	}
	data, err := s.cfg.Blobs.Get(ctx, m.GetBlob(), mailbox.Digest(m.GetBlobDigest()), maxChangeBytes)
	if err != nil {
		return nil, err
	}
	changes, err := membership.DecodeChanges(data)
	if err != nil {
		return nil, fmt.Errorf("%w: blob %s: %w", mailbox.ErrCorrupt, m.GetBlob(), err)
	}
	return changes, nil
}

// maxChangeBytes bounds a change's blob: a million users with the longest ids.
const maxChangeBytes = 200 << 20
