package retention

import (
	"time"

	"github.com/laneway/laneway/mailbox"
)

// MayRemoveProgress decides about one dispatch of a shard (design 3, "Dispatch
// progress"): an operator has set a window, W and the floor of all lanes are past
// the highest offset at which it was seen, and that was longer ago than the window.
func MayRemoveProgress(p *mailbox.DispatchProgress, w *mailbox.Watermarks, now time.Time, window time.Duration) bool {
	if window <= 0 || !p.Complete() || now.UnixMilli()-p.LastSeen <= window.Milliseconds() {
		return false
	}
	last := max(p.LastOffset, p.Seq.Offset())
	for lane := range w.W {
		for _, at := range [2]mailbox.Seq{w.W[lane], w.Floor[lane]} {
			if at == 0 || at < p.Seq || at.Offset() < last {
				return false
			}
		}
	}
	return true
}
