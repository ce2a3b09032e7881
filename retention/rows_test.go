package retention

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// FuzzRows: whatever a row of the job holds, it is an error or can be gone on from.
func FuzzRows(f *testing.F) {
	f.Add([]byte(`{"last":3,"freed":1,"open":[{"n":2,"at":5,"outbox":[1,2]},{"n":3,"at":6,"gone":7,"dispatch":[9]}]}`), "membership/00ff/1/2/bitmap-3")
	f.Add([]byte(`{"checkpoints":[{"run":3,"generation":1,"version":5}]}`), "membership//18446744073709551616/2/x")
	f.Fuzz(func(t *testing.T, row []byte, key string) {
		var r Runs
		if json.Unmarshal(row, &r) == nil {
			p := Positions{OutboxStart: []int64{1, 2}, OutboxEnd: []int64{3, 4}, DispatchStart: []int64{9}, DispatchEnd: []int64{9}}
			if err := r.Observe(time.UnixMilli(1_800_000_000_000), p, time.Hour, time.Minute); err == nil && len(r.Open) > 0 && r.Open[len(r.Open)-1].At == 0 {
				t.Fatal("a run without a time")
			}
		}
		var g GroupState
		if json.Unmarshal(row, &g) == nil {
			g.Note(1, 7, 9, 3)
			if b, ok := g.Bound(math.MaxUint64); ok && b.Version > 7 {
				t.Fatalf("a bound of the future: %+v", b)
			}
		}
		if _, _, _, ok := blobOf(key); ok && !new(Keep).Blob(key) {
			t.Fatal("a group that is not known keeps everything")
		}
	})
}
