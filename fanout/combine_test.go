package fanout

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// cut is the combination rule of design 2.3 and 5.3 as a reader would say it:
// events keep their order; a part ends before an event whose type it has already.
func cut(kinds []logv1.EventKind) (parts [][]int) {
	var part []int
	has := map[logv1.EventKind]bool{}
	for i, k := range kinds {
		if has[k] {
			parts, part, has = append(parts, part), nil, map[logv1.EventKind]bool{}
		}
		part, has[k] = append(part, i), true
	}
	return append(parts, part)
}

// TestEveryCombinationOfEventsIsCutByTheRule plans every sequence of up to five
// events of the four types, with and without payloads of the largest size: 2,728
// records. (A fifth is always of a type that is there, so that longer sequences
// show nothing new; and four events with the longest ids and payloads stay below
// 8 KiB, so that the number of entries and the size never cut first.)
func TestEveryCombinationOfEventsIsCutByTheRule(t *testing.T) {
	var all [][]logv1.EventKind
	level := [][]logv1.EventKind{nil}
	for range 5 {
		var next [][]logv1.EventKind
		for _, s := range level {
			for k := logv1.EventKind(1); k <= 4; k++ {
				next = append(next, append(append([]logv1.EventKind(nil), s...), k))
			}
		}
		all, level = append(all, next...), next
	}
	require.Len(t, all, 4+16+64+256+1024)
	for _, kinds := range all {
		for _, payload := range []int{0, mailbox.MaxPayloadBytes} {
			events := make([]*logv1.Event, len(kinds))
			for i, k := range kinds {
				events[i] = &logv1.Event{Kind: k, UserIds: []string{fmt.Sprint("named", i)}} // says which it is
				if payload > 0 {
					events[i].Payload = bytes.Repeat([]byte{byte(i)}, payload)
				}
			}
			rec := singleRecord("c", 1, events...)
			rec.GetUsers().UserIds = []string{"alice"}
			require.NoError(t, records.CheckOutbox(rec, testShards))
			ds, err := Plan(rec, Source{}, testShards)
			require.NoError(t, err)
			want := cut(kinds)
			require.Len(t, ds, len(want), "%v", kinds)
			for p, d := range ds {
				require.EqualValues(t, p, d.Part)
				require.Len(t, d.Events, len(want[p]), "%v part %d", kinds, p)
				for j, e := range d.Events {
					require.True(t, j == 0 || d.Events[j-1].Type < e.Type, "%v part %d: one of each type, in type order", kinds, p)
				}
				for _, i := range want[p] {
					require.Contains(t, d.Events, records.Event{Type: mailbox.EventType(kinds[i] - 1), Users: events[i].GetUserIds(), Payload: events[i].GetPayload()}, "%v part %d", kinds, p)
				}
			}
		}
	}
}

// TestFourEventsOfTheLargestSizeAreOneGroup is why the size never cuts: the four
// types with the longest ids and payloads fit an event group.
func TestFourEventsOfTheLargestSizeAreOneGroup(t *testing.T) {
	long := func(c string) string { return string(bytes.Repeat([]byte(c), mailbox.MaxIDBytes)) }
	var events []*logv1.Event
	for k := logv1.EventKind(1); k <= 4; k++ {
		events = append(events, &logv1.Event{Kind: k, Payload: make([]byte, mailbox.MaxPayloadBytes)})
	}
	rec := singleRecord(long("c"), 1<<63, events...)
	rec.TenantId, rec.SenderId, rec.MessageId = long("t"), long("s"), long("m")
	rec.GetUsers().UserIds = []string{long("u")}
	ds, err := Plan(rec, Source{}, testShards)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.Len(t, ds[0].Events, 4)
	require.Less(t, 4*entrySize(rec)+4*(mailbox.MaxPayloadBytes+8), mailbox.MaxGroupBytes)
}
