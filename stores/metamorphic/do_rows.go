package metamorphic

import (
	"context"
	"fmt"
	"slices"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// conversations are all that a history names.
var conversations = func() (out []mailbox.Conversation) {
	for i := range 6 {
		out = append(out, conversationOf(fmt.Sprint("c", i)))
	}
	return out
}()

func progressOf(d *Dispatch) mailbox.DispatchProgress {
	out := mailbox.DispatchProgress{
		Dispatch: dispatchOf(d.Name), Seq: d.At.seq(), PayloadDigest: mailbox.Sum([]byte(d.Digest)), Unexpanded: d.Unexpanded,
		Record: []byte("record " + d.Digest + "\x00\xff"), LastOffset: d.Name.seq().Offset(), LastSeen: storetest.Start.UnixMilli(),
	}
	if d.Unexpanded {
		return out
	}
	out.Manifest = mailbox.Manifest{EntryVersion: mailbox.EntryVersion, ChunkSize: mailbox.ChunkEntries, Audience: mailbox.Sum([]byte("audience"))}
	for i, n := range d.Chunks {
		if n > 0 {
			out.Manifest.Lanes = append(out.Manifest.Lanes, mailbox.LaneChunks{Lane: markLanes[i], Users: 9 * n, Chunks: n})
			out.Manifest.Entries += 9 * n
		}
	}
	return out
}

func (p *player) sayProgress(r *mailbox.DispatchProgress) {
	if r == nil {
		p.say("unknown")
		return
	}
	var marks []int
	for i := range r.Manifest.Chunks() {
		if r.Marks.Has(i) {
			marks = append(marks, i)
		}
	}
	p.say("%s at %s payload %s unexpanded %t manifest %d %d %s %d %v record %x seen %d %d marks %v complete %t", r.Dispatch, r.Seq, r.PayloadDigest, r.Unexpanded,
		r.Manifest.EntryVersion, r.Manifest.ChunkSize, r.Manifest.Audience, r.Manifest.Entries, r.Manifest.Lanes, r.Record, r.LastOffset, r.LastSeen, marks, r.Complete())
}

func (p *player) doProgress(ctx context.Context, s *Step) error {
	own, _ := p.owner(s.Shard, s.Stale)
	switch s.Op {
	case opBegin:
		b := mailbox.BeginBatch{Fences: fenceRows(s.Fences), Frontier: s.Frontier.seq()}
		for i := range s.Dispatches {
			b.Progress = append(b.Progress, progressOf(&s.Dispatches[i]))
		}
		for _, r := range s.Repeats {
			b.Repeats = append(b.Repeats, mailbox.DispatchRepeat{Dispatch: dispatchOf(r.Name), Seq: r.Name.seq(), Offset: r.Offset, SeenAt: storetest.Start.UnixMilli() + r.SeenAt})
		}
		return p.loosely(p.store.Begin(ctx, own, b))
	case opMark:
		var chunks []mailbox.Durable
		for _, m := range s.Marks {
			chunks = append(chunks, mailbox.NewDurable(mailbox.ChunkRef{Shard: s.Shard, Dispatch: dispatchOf(m.Name), Seq: m.Name.seq(), Lane: m.Lane, Index: m.Index}))
		}
		marked, err := p.store.MarkChunks(ctx, own, chunks)
		for i, m := range marked {
			if m.Chunk() != chunks[i].Chunk() {
				p.say("%s: a receipt of %s", chunks[i].Chunk(), m.Chunk())
			}
		}
		return p.loosely(err)
	case opLookup:
		var ids []mailbox.DispatchID
		for _, d := range s.Dispatches {
			ids = append(ids, dispatchOf(d.Name))
		}
		found, err := p.store.LookupDispatches(ctx, s.Shard, ids)
		for _, r := range found {
			p.sayProgress(r)
		}
		return err
	case opProgress:
		n := 0
		return p.store.ScanProgress(ctx, s.Shard, s.After.seq(), func(r *mailbox.DispatchProgress) bool {
			p.sayProgress(r)
			n++
			return n < s.Limit
		})
	case opFences:
		rows, err := p.store.LoadFences(ctx, s.Shard, conversations)
		p.sayFences(rows)
		return err
	case opOutboxPut:
		return p.durably(p.store.PutOutboxFences(ctx, int32(s.Offset), fenceRows(s.Fences)))
	default: // opOutbox
		rows, err := p.store.LoadOutboxFences(ctx, int32(s.Offset), conversations)
		p.sayFences(rows)
		return err
	}
}

func (p *player) doRows(ctx context.Context, s *Step) error {
	c, group := conversationOf(s.Conversation), mailbox.Group{Tenant: tenant, ID: "group"}
	v := mailbox.GroupVersion{Group: group, Generation: s.Generation, Version: s.Version}
	switch s.Op {
	case opHead:
		data, revision, err := p.store.Head(ctx, c)
		p.say("revision %d %q", revision, data)
		return err
	case opHeadSet:
		return p.setHead(ctx, s, c)
	case opPending:
		return p.sayPending(ctx)
	case opCommitted:
		data, err := p.store.Committed(ctx, c, "sender", s.Key)
		p.say("%q", data)
		return err
	case opCommittedPut:
		return p.loosely(p.store.PutCommitted(ctx, c, "sender", s.Key, []byte(s.Data)))
	case opVersionPut:
		w := mailbox.VersionWrite{GroupVersion: v, Manifest: []byte("manifest " + s.Data), Bitmaps: map[mailbox.Shard][]byte{}, Directory: map[mailbox.Shard][]mailbox.DirectoryRow{}}
		for _, r := range s.Slots {
			n := mailbox.Place(userOf(r.User), shards).Shard
			w.Directory[n] = append(w.Directory[n], r)
			w.Bitmaps[n] = []byte(s.Data)
		}
		return p.durably(p.store.PutVersion(ctx, w))
	case opVersion:
		bitmap, err := p.store.VersionBitmap(ctx, v, s.Shard)
		p.say("bitmap %q %v", bitmap, err != nil)
		manifest, err := p.store.VersionManifest(ctx, v)
		p.say("manifest %q", manifest)
		return err
	case opDirectory:
		n := 0
		return p.store.Directory(ctx, group, s.Generation, s.Shard, uint32(s.Offset), func(r mailbox.DirectoryRow) bool {
			p.say("%+v", r)
			n++
			return n < s.Limit
		})
	case opSlots:
		var users []string
		for _, r := range s.Slots {
			users = append(users, r.User)
		}
		rows, err := p.store.LatestSlots(ctx, group, s.Generation, users)
		p.say("%+v", rows)
		return err
	case opCommitState:
		st, revision, err := p.store.LoadCommitState(ctx)
		p.say("revision %d %q %d %v %v", revision, st.Incarnation, st.Epoch, st.Positions, st.Markers)
		return err
	case opCommitStatePut:
		_, revision, err := p.store.LoadCommitState(ctx)
		if err != nil {
			return err
		}
		if s.Stale {
			revision++
		}
		st := mailbox.CommitState{Incarnation: s.Key, Epoch: uint64(s.Limit), Positions: []int64{s.Offset, 0}}
		if s.Limit > 0 {
			st.Markers = []int64{1, s.Offset}
		}
		return p.durably(p.store.CompareAndSetCommitState(ctx, revision, st))
	case opRegistry:
		data, revision, err := p.store.LoadRegistry(ctx, s.Key)
		p.say("revision %d %q", revision, data)
		return err
	case opRegistrySet:
		_, revision, err := p.store.LoadRegistry(ctx, s.Key)
		if err != nil {
			return err
		}
		if s.Stale {
			revision++
		}
		return p.durably(p.store.CompareAndSetRegistry(ctx, s.Key, revision, []byte(s.Data)))
	}
	return fmt.Errorf("a history with an unknown operation %q", s.Op)
}

func (p *player) setHead(ctx context.Context, s *Step, c mailbox.Conversation) error {
	_, revision, err := p.store.Head(ctx, c)
	if err != nil {
		return err
	}
	if s.Stale {
		revision++
	}
	if err := p.store.CompareAndSetHead(ctx, c, revision, []byte(s.Data), s.Durable); err != nil {
		return err
	}
	p.pending[c.ID] = s.Durable
	if s.Durable {
		return p.durably(nil)
	}
	return p.loosely(nil)
}

// sayPending says which of the heads that must be named are. A store may name
// others too.
func (p *player) sayPending(ctx context.Context) error {
	var named []string
	err := p.store.PendingHeads(ctx, func(c mailbox.Conversation) bool {
		if p.pending[c.ID] && !slices.Contains(named, c.ID) {
			named = append(named, c.ID)
		}
		return true
	})
	slices.Sort(named)
	p.say("pending %v", named)
	return err
}
