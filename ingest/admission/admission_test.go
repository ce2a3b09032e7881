package admission_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/fencing"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

const shard = mailbox.Shard(0)

// record is a decoded dispatch of one of a few messages, in one of two contents.
func record(offset int64, message int, other bool, fence uint64) admission.Decoded {
	d := &records.Dispatch{
		Shard: shard, Tenant: "acme", Conversation: fmt.Sprintf("c%d", message%2), Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
		MessageID: fmt.Sprintf("m%d", message), ConversationSeq: uint64(message + 1), FencingEpoch: fence, Users: []string{"ann", "bob"},
	}
	if other {
		d.Users = []string{"ann", "carol"}
	}
	d.DispatchID = mailbox.NewDispatchID(d.ConversationKey(), d.ConversationSeq, d.MessageID, 0)
	d.PayloadDigest = d.ContentDigest()
	return admission.Decoded{Record: admission.Record{Offset: offset}, Dispatch: d}
}

// state is what a shard of epoch 1 decides against, with the fencing memory of
// what came before.
func state(before []admission.Decoded) admission.State {
	st := admission.State{Shard: shard, Boundaries: &mailbox.Boundaries{}, Fences: fences(before)}
	st.Boundaries.Add(1, 0)
	return st
}

func fences(before []admission.Decoded) *fencing.Memory {
	m := fencing.NewMemory(10)
	m.Loaded([]mailbox.Conversation{{Tenant: "acme", ID: "c0"}, {Tenant: "acme", ID: "c1"}}, nil)
	for _, d := range before {
		m.Decide(d.Dispatch.ConversationKey(), d.Dispatch.FencingEpoch, d.Offset)
	}
	return m
}

// TestDecisionsThatStandAreThoseOfALookUp: whatever the store knows, a batch that
// is decided without asking it either says that it must be asked, or begins a
// dispatch which the store knows at another place and refuses, or is decided as
// with the look-up. And deciding it a second time, over the memory of the first,
// comes to what a look-up at once would have come to.
func TestDecisionsThatStandAreThoseOfALookUp(t *testing.T) {
	draw := func(t *rapid.T, name string, from int64) []admission.Decoded {
		n := rapid.IntRange(1, 8).Draw(t, name)
		out := make([]admission.Decoded, n)
		for i := range out {
			out[i] = record(from+int64(i), rapid.IntRange(0, 5).Draw(t, "message"), rapid.IntRange(0, 9).Draw(t, "content") == 0, rapid.Uint64Range(1, 3).Draw(t, "fence"))
			if rapid.IntRange(0, 19).Draw(t, "rubbish") == 0 {
				out[i].Dispatch, out[i].Err = nil, records.NewError(records.Undecodable, nil, "rubbish")
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		var before []admission.Decoded
		for _, d := range draw(t, "before", 1) {
			if d.Err == nil {
				before = append(before, d)
			}
		}
		known := map[mailbox.DispatchID]*mailbox.DispatchProgress{}
		items, err := admission.Decide(state(nil), before)
		require.NoError(t, err)
		for _, it := range items {
			if it.Kind == admission.New {
				known[it.Dispatch.DispatchID] = &mailbox.DispatchProgress{Dispatch: it.Dispatch.DispatchID, Seq: it.Seq, PayloadDigest: it.Dispatch.PayloadDigest}
			}
		}
		batch := draw(t, "batch", 100)

		asked := state(before)
		asked.Known = known
		want, err := admission.Decide(asked, batch)
		require.NoError(t, err)

		hopeful := state(before)
		got, err := admission.Decide(hopeful, batch)
		require.NoError(t, err)
		refused := false
		for _, it := range got {
			if it.Kind == admission.New {
				refused = refused || known[it.Dispatch.DispatchID] != nil
			}
		}
		if !admission.Stands(got) || refused {
			hopeful.Known = known
			got, err = admission.Decide(hopeful, batch)
			require.NoError(t, err)
		}
		require.Equal(t, want, got)
		horizon := int64(0)
		require.Equal(t, asked.Fences.(*fencing.Memory).Dirty(horizon), hopeful.Fences.(*fencing.Memory).Dirty(horizon))
	})
}

// TestOnlyTheStoreKnowsAStaleDuplicate: a record of an older writer that repeats
// a known dispatch is a duplicate, whose last sight is kept, and not stale.
func TestOnlyTheStoreKnowsAStaleDuplicate(t *testing.T) {
	first := record(1, 0, false, 1)
	newer := record(2, 2, false, 3)
	again := record(100, 0, false, 1)
	st := state([]admission.Decoded{first, newer})
	items, err := admission.Decide(st, []admission.Decoded{again})
	require.NoError(t, err)
	require.Equal(t, admission.Stale, items[0].Kind)
	require.False(t, admission.Stands(items))
	st.Known = map[mailbox.DispatchID]*mailbox.DispatchProgress{first.Dispatch.DispatchID: {Seq: 1<<48 | 1, PayloadDigest: first.Dispatch.PayloadDigest}}
	items, err = admission.Decide(st, []admission.Decoded{again})
	require.NoError(t, err)
	require.Equal(t, admission.Duplicate, items[0].Kind)
	require.Equal(t, mailbox.Seq(1<<48|1), items[0].FirstSeq)
}
