package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

var scriptBegin = newScript("begin", "shardlib")

const (
	// beginPart is how many rows one run of the script writes at most, and
	// beginCheck how many it compares: both keep a run near 1 ms.
	beginPart  = 64
	beginCheck = 256
	// scanPage is how many dispatches ScanProgress reads at a time.
	scanPage = 256
)

// A dispatch's hash: begun is what a repeat is compared with, row is the row as it
// began, the rest comes later.
var progressFields = []string{"begun", "row", "marks", "max_offset", "last_seen"}

const (
	identitySize     = 16 + 32        // seq in hex, payload digest
	manifestHeadSize = 1 + 4 + 4 + 32 // entry version, chunk size, entries, audience
	manifestLaneSize = 1 + 4 + 3      // lane, users, chunks
)

// begunAs is what a dispatch begins as, in a form in which the same is the same
// bytes and the marking script finds the chunks of each lane: its identity, and
// its manifest unless it is unexpanded.
func begunAs(p *mailbox.DispatchProgress) ([]byte, error) {
	m := &p.Manifest
	b := make([]byte, 0, identitySize+manifestHeadSize+manifestLaneSize*len(m.Lanes))
	b = append(append(b, seqText(p.Seq)...), p.PayloadDigest[:]...)
	if p.Unexpanded {
		return b, nil
	}
	b = append(b, m.EntryVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(m.ChunkSize))
	b = binary.BigEndian.AppendUint32(b, uint32(m.Entries))
	b = append(b, m.Audience[:]...)
	for _, l := range m.Lanes {
		if l.Chunks < 0 || l.Chunks >= 1<<24 {
			return nil, fmt.Errorf("redis: dispatch %s has %d chunks in lane %d; at most %d can be kept", p.Dispatch, l.Chunks, l.Lane, 1<<24-1)
		}
		b = append(b, uint8(l.Lane))
		b = binary.BigEndian.AppendUint32(b, uint32(l.Users))
		b = append(b, byte(l.Chunks>>16), byte(l.Chunks>>8), byte(l.Chunks))
	}
	return b, nil
}

// Begin implements mailbox.ShardStore: all of a batch or nothing, in one round
// trip. F comes last: it never passes a part that failed.
func (s *Store) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(own.Shard); err != nil {
		return err
	}
	steps, err := s.beginSteps(own.Shard, &b)
	if err == nil {
		err = s.runSteps(ctx, scriptBegin, own, steps)
	}
	if err != nil {
		return fmt.Errorf("begin in shard %d: %w", own.Shard, err)
	}
	return nil
}

// beginSteps cuts a batch.
func (s *Store) beginSteps(n mailbox.Shard, b *mailbox.BeginBatch) ([]batchStep, error) {
	parts := beginParts(*b, beginPart)
	var checks []mailbox.BeginBatch
	if len(parts) > 1 {
		within, err := checkWithin(b)
		if err != nil {
			return nil, err
		}
		checks = beginParts(within, beginCheck)
	}
	steps := make([]batchStep, 0, len(checks)+len(parts))
	for i, part := range append(checks, parts...) {
		step, err := s.beginStep(n, &part, i >= len(checks))
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// beginParts cuts a batch into parts of at most size rows, in their order. There
// is at least one; the last has the frontier.
func beginParts(b mailbox.BeginBatch, size int) (parts []mailbox.BeginBatch) {
	for {
		var p mailbox.BeginBatch
		n := size
		p.Fences, b.Fences, n = cut(b.Fences, n)
		p.Progress, b.Progress, n = cut(b.Progress, n)
		p.Repeats, b.Repeats, _ = cut(b.Repeats, n)
		if len(b.Fences)+len(b.Progress)+len(b.Repeats) == 0 {
			p.Frontier = b.Frontier
			return append(parts, p)
		}
		parts = append(parts, p)
	}
}

// checkWithin compares a batch's dispatches with each other, as the script does
// when it has all of them, and returns what is left to compare with the store:
// not the fences, and not the repeats of dispatches that the batch itself begins.
func checkWithin(b *mailbox.BeginBatch) (mailbox.BeginBatch, error) {
	rest := mailbox.BeginBatch{Progress: b.Progress}
	begins := make(map[mailbox.DispatchID]*mailbox.DispatchProgress, len(b.Progress))
	for i := range b.Progress {
		p := &b.Progress[i]
		known := begins[p.Dispatch]
		switch {
		case known == nil || known.Unexpanded && known.Seq == p.Seq && known.PayloadDigest == p.PayloadDigest:
			begins[p.Dispatch] = p
		case known.Seq != p.Seq:
			return rest, fmt.Errorf("%w: dispatch %s is in the batch at %s and at %s", mailbox.ErrDispatchKnown, p.Dispatch, known.Seq, p.Seq)
		case known.PayloadDigest != p.PayloadDigest || !p.Unexpanded && !known.Manifest.Equal(&p.Manifest):
			return rest, fmt.Errorf("%w: dispatch %s is in the batch with two contents", mailbox.ErrManifestMismatch, p.Dispatch)
		}
	}
	for _, r := range b.Repeats {
		if p := begins[r.Dispatch]; p == nil || p.Seq != r.Seq {
			rest.Repeats = append(rest.Repeats, r)
		}
	}
	return rest, nil
}

func (s *Store) beginStep(n mailbox.Shard, b *mailbox.BeginBatch, write bool) (batchStep, error) {
	keys := make([]string, 0, 2+len(b.Progress)+len(b.Repeats))
	keys = append(keys, s.fenceKey(n), s.progressIndexKey(n))
	args := make([]any, 0, 4+2*len(b.Fences)+3*len(b.Progress)+3*len(b.Repeats))
	args = append(args, seqText(b.Frontier), len(b.Fences))
	for i := range b.Fences {
		f := &b.Fences[i]
		if err := f.Conversation.Check(); err != nil {
			return batchStep{}, err
		}
		args = append(args, conversationMember(f.Conversation), rows.EncodeFence(f))
	}
	args = append(args, len(b.Progress))
	for i := range b.Progress {
		p := &b.Progress[i]
		if p.Seq.Epoch() == 0 {
			return batchStep{}, fmt.Errorf("dispatch %s: %w: seq %s is before every epoch", p.Dispatch, mailbox.ErrSeqRange, p.Seq)
		}
		as, err := begunAs(p)
		if err != nil {
			return batchStep{}, err
		}
		keys = append(keys, s.progressKey(n, p.Dispatch))
		if write {
			args = append(args, as, rows.EncodeProgress(p), seqText(p.Seq)+p.Dispatch.String())
		} else {
			args = append(args, as, "", "")
		}
	}
	args = append(args, len(b.Repeats))
	for _, r := range b.Repeats {
		keys = append(keys, s.progressKey(n, r.Dispatch))
		args = append(args, seqText(r.Seq), max(r.Offset, 0), max(r.SeenAt, 0))
	}
	return batchStep{keys: keys, args: args, write: write}, nil
}

// LookupDispatches implements mailbox.ShardStore: one pipeline.
func (s *Store) LookupDispatches(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	return s.lookup(ctx, n, ids)
}

func (s *Store) lookup(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	out := make([]*mailbox.DispatchProgress, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	pipe := s.client().Pipeline()
	cmds := make([]*goredis.SliceCmd, len(ids))
	for i, id := range ids {
		cmds[i] = pipe.HMGet(ctx, s.progressKey(n, id), progressFields...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, id := range ids {
		fields, err := cmds[i].Result()
		if err != nil {
			return nil, s.serverError("look up dispatch progress of shard "+decimal(n), err)
		}
		if out[i], err = decodeProgress(id, texts(fields)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decodeProgress reads the fields of a dispatch's hash, nil if it has none.
func decodeProgress(id mailbox.DispatchID, f []string) (*mailbox.DispatchProgress, error) {
	begun, row := f[0], f[1]
	if begun == "" && row == "" {
		return nil, nil
	}
	corrupt := func(err error) error { return fmt.Errorf("progress of dispatch %s: %w", id, err) }
	if len(begun) < identitySize {
		return nil, corrupt(fmt.Errorf("%w: it is cut", mailbox.ErrCorrupt))
	}
	p := &mailbox.DispatchProgress{}
	var err error
	if p.Seq, err = parseSeq(begun[:16]); err != nil {
		return nil, corrupt(err)
	}
	if err := rows.DecodeProgress([]byte(row), p); err != nil {
		return nil, corrupt(err)
	}
	if p.Dispatch != id || string(p.PayloadDigest[:]) != begun[16:identitySize] {
		return nil, corrupt(fmt.Errorf("%w: it holds another dispatch", mailbox.ErrCorrupt))
	}
	for i, field := range []*int64{&p.LastOffset, &p.LastSeen} {
		if text := f[3+i]; text != "" {
			later, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, corrupt(fmt.Errorf("%w: %w", mailbox.ErrCorrupt, err))
			}
			*field = max(*field, later)
		}
	}
	if p.Marks, err = rows.DecodeMarks([]byte(f[2]), p.Manifest.Chunks()); err != nil {
		return nil, corrupt(err)
	}
	return p, nil
}

// ScanProgress implements mailbox.ShardStore. It reads pages of the index, and of
// each the dispatches in one pipeline; f may call the store between. A dispatch
// that begins meanwhile behind the page is not seen, one ahead of it is.
func (s *Store) ScanProgress(ctx context.Context, n mailbox.Shard, after mailbox.Seq, f func(*mailbox.DispatchProgress) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return err
	}
	lower := "-"
	if after == ^mailbox.Seq(0) {
		return nil
	}
	if after > 0 {
		lower = "[" + seqText(after+1)
	}
	for {
		members, err := s.client().ZRangeArgs(ctx, goredis.ZRangeArgs{Key: s.progressIndexKey(n), Start: lower, Stop: "+", ByLex: true, Count: scanPage}).Result()
		if err != nil {
			return s.serverError("scan the progress index of shard "+decimal(n), err)
		}
		if len(members) == 0 {
			return nil
		}
		more, err := s.scanMembers(ctx, n, members, f)
		if err != nil || !more {
			return err
		}
		if len(members) < scanPage {
			return nil
		}
		lower = "(" + members[len(members)-1]
	}
}

func (s *Store) scanMembers(ctx context.Context, n mailbox.Shard, members []string, f func(*mailbox.DispatchProgress) bool) (bool, error) {
	seqs, ids := make([]mailbox.Seq, len(members)), make([]mailbox.DispatchID, len(members))
	for i, m := range members {
		split := min(len(m), 16)
		var seqErr, idErr error
		seqs[i], seqErr = parseSeq(m[:split])
		ids[i], idErr = mailbox.ParseDispatchID(m[split:])
		if seqErr != nil || idErr != nil {
			return false, fmt.Errorf("%w: a member of the progress index of shard %d", mailbox.ErrCorrupt, n)
		}
	}
	page, err := s.lookup(ctx, n, ids)
	if err != nil {
		return false, err
	}
	for i, p := range page {
		if p == nil || p.Seq != seqs[i] {
			return false, fmt.Errorf("%w: the progress index of shard %d has dispatch %s at %s, where it did not begin", mailbox.ErrCorrupt, n, ids[i], seqs[i])
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !f(p) {
			return false, nil
		}
	}
	return true, nil
}
