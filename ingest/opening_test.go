package ingest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

func TestLanesAreClosedWhenTheStoreMayHaveLostItsTail(t *testing.T) {
	for name, c := range map[string]struct {
		before      mailbox.ShardState
		logEpoch    mailbox.Epoch
		own         mailbox.Epoch
		incarnation string
		closed      bool
	}{
		"AStoreThatLosesNothing":     {mailbox.ShardState{Epoch: 4}, 4, 5, "", false},
		"AStoreThatLosesNothingNew":  {mailbox.ShardState{}, 0, 1, "", false},
		"TheSameRun":                 {mailbox.ShardState{Epoch: 4, Incarnation: "a", Boundaries: []mailbox.Boundary{{Epoch: 4, Offset: 70}}}, 4, 5, "a", false},
		"AnotherRun":                 {mailbox.ShardState{Epoch: 4, Incarnation: "a", Boundaries: []mailbox.Boundary{{Epoch: 4, Offset: 70}}}, 4, 5, "b", true},
		"AShardTheStoreDoesNotKnow":  {mailbox.ShardState{}, 7, 8, "b", true},
		"TheLastOwnerNeverOpenedAll": {mailbox.ShardState{Epoch: 4, Incarnation: "a", Boundaries: []mailbox.Boundary{{Epoch: 3, Offset: 70}}}, 4, 5, "a", true},
		"AnOwnerInBetween":           {mailbox.ShardState{Epoch: 4, Incarnation: "a", Boundaries: []mailbox.Boundary{{Epoch: 4, Offset: 70}}}, 4, 6, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newOpening(&c.before, c.logEpoch, mailbox.Boundary{Epoch: c.own, Offset: 100}, c.incarnation)
			require.NoError(t, err)
			require.Equal(t, c.closed, o.closed())
			require.Equal(t, !c.closed, o.open(mailbox.Seq(c.own-1)<<48|99))
			require.True(t, o.open(mailbox.Seq(c.own)<<48|100))
			select {
			case <-o.done:
				require.False(t, c.closed)
			default:
				require.True(t, c.closed)
			}
			w := mailbox.Watermarks{}
			for lane := range w.W {
				w.W[lane] = mailbox.Seq(c.own)<<48 | 100
			}
			w.W[9]--
			o.moved(&w)
			require.Equal(t, !c.closed, o.told)
			w.W[9]++
			o.moved(&w)
			o.moved(&w)
			<-o.done
		})
	}
}

// TestNoLaneTellsLessThanAnyOwnerTold runs owners of one lane over a store that
// now and then comes back as it was some writes ago: crashes between any two
// steps, tails lost, lanes that catch up or not before the owner ends.
func TestNoLaneTellsLessThanAnyOwnerTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			st mailbox.ShardState
			w  mailbox.Seq
		}
		history := []row{{}} // the store after each write
		run := byte('a')
		var told, log mailbox.Seq // the log's end is an offset in the last epoch
		epoch := mailbox.Epoch(0)
		write := func(f func(*row)) {
			next := history[len(history)-1]
			next.st.Boundaries = append([]mailbox.Boundary(nil), next.st.Boundaries...)
			f(&next)
			history = append(history, next)
		}
		for range rapid.IntRange(1, 12).Draw(t, "ownerships") {
			if rapid.IntRange(0, 2).Draw(t, "server restarts") == 0 {
				run++
				history = history[:rapid.IntRange(1, len(history)).Draw(t, "writes kept")]
			}
			before := history[len(history)-1].st
			own := max(before.Epoch, epoch) + 1
			write(func(r *row) { r.st.Epoch, r.st.Incarnation = own, string(run) })
			if rapid.IntRange(0, 5).Draw(t, "ends after the fence") == 0 {
				continue
			}
			logEpoch := epoch
			epoch = own
			log = mailbox.Seq(own)<<48 | mailbox.Seq(log.Offset()+1)
			o, err := newOpening(&before, logEpoch, mailbox.Boundary{Epoch: own, Offset: log.Offset()}, string(run))
			require.NoError(t, err)
			putBoundary := func() {
				write(func(r *row) { r.st.Boundaries = append(r.st.Boundaries, o.boundary) })
			}
			if !o.closed() {
				putBoundary()
			}
			for range rapid.IntRange(0, 6).Draw(t, "steps") {
				switch rapid.IntRange(0, 2).Draw(t, "step") {
				case 0: // a message
					log++
				case 1: // W moves, perhaps not all the way, and never to a seq of an epoch that is not in the log
					w := history[len(history)-1].w
					at := max(w.Offset(), 0) + int64(rapid.IntRange(0, int(log.Offset()-w.Offset())).Draw(t, "by"))
					next := mailbox.Seq(own)<<48 | mailbox.Seq(at)
					if at < o.boundary.Offset {
						next = mailbox.Seq(max(w.Epoch(), 1))<<48 | mailbox.Seq(at)
					}
					if next <= w {
						continue
					}
					write(func(r *row) { r.w = next })
					if o.closed() && !o.told && o.open(next) {
						o.told = true
						putBoundary()
					}
				case 2: // a reader
					if w := history[len(history)-1].w; o.open(w) {
						require.GreaterOrEqual(t, w.Offset(), told.Offset(), "a reader is told less than another was")
						told = w
					}
				}
			}
		}
	})
}
