package bench

import (
	"fmt"
	"testing"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/watermark"
)

// BenchmarkTracker is the cost of one record in the tracker: admission, the
// receipt of its chunk, the frontier. It must not grow with the lane count.
func BenchmarkTracker(b *testing.B) {
	for _, lanes := range []int{1, 64} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			manifests := make([]*mailbox.Manifest, lanes)
			for l := range manifests {
				manifests[l] = &mailbox.Manifest{Lanes: []mailbox.LaneChunks{{Lane: mailbox.Lane(l), Users: 1, Chunks: 1}}}
			}
			// Work arrives in batches of 256, as on the hot path.
			const batch = 256
			t := watermark.New([mailbox.LaneCount]mailbox.Seq{})
			var w [mailbox.LaneCount]mailbox.Seq
			seq := mailbox.Seq(1) << 48
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				seq++
				if err := t.Admit(seq, manifests[i%lanes], nil); err != nil {
					b.Fatal(err)
				}
				t.Observe(seq)
				if i%batch == batch-1 {
					for j := i - batch + 1; j <= i; j++ {
						s := seq - mailbox.Seq(i-j)
						if !t.Done(mailbox.NewMarked(mailbox.ChunkRef{Seq: s, Lane: mailbox.Lane(j % lanes)})) {
							b.Fatal("a chunk was not open")
						}
					}
					t.Positions(&w)
				}
			}
		})
	}
}
