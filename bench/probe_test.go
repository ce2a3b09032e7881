package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
)

// probes are single chats that send one message after another and measure each
// from the commit's answer until W of the recipient's lane has passed it.
type probes struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	took   []time.Duration
	err    error
}

const probeChats = 8

var probeRun int

// startProbes starts single chats to users in lanes 48 to 63.
func startProbes(b *testing.B, n *node.Node) *probes {
	b.Helper()
	return startProbesIn(b, n, 48, 64)
}

func startProbesIn(b *testing.B, n *node.Node, from, to mailbox.Lane) *probes {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	p := &probes{cancel: cancel}
	probeRun++
	users := make([]string, 0, probeChats)
	for i := 0; len(users) < probeChats; i++ {
		u := fmt.Sprintf("probe-%d-%d", from, i)
		if l := mailbox.Place(mailbox.User{Tenant: "bench", ID: u}, n.Shards()).Lane; l >= from && l < to {
			users = append(users, u)
		}
	}
	for _, u := range users {
		run := probeRun
		p.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				d, err := probe(ctx, n, u, fmt.Sprint(run, "-", i))
				p.mu.Lock()
				if err != nil && ctx.Err() == nil {
					p.err = err
				}
				if err == nil {
					p.took = append(p.took, d)
				}
				p.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	return p
}

func probe(ctx context.Context, n *node.Node, user, id string) (time.Duration, error) {
	conv := mailbox.Conversation{Tenant: "bench", ID: "probe-" + user}
	at := mailbox.Place(mailbox.User{Tenant: conv.Tenant, ID: user}, n.Shards())
	s := n.Shard(int(at.Shard))
	moved, stop := s.Watch(at.Lane)
	defer stop()
	r, err := n.Commits().Commit(ctx, conversation.CommitRequest{
		Conversation: conv, Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE, Sender: user, ClientMessageID: id, Recipients: []string{user},
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	d := mailbox.NewDispatchID(conv, r.ConversationSeq, r.MessageID, 0)
	for {
		rows, err := n.Store().LookupDispatches(ctx, at.Shard, []mailbox.DispatchID{d})
		if err != nil {
			return 0, err
		}
		if rows[0] != nil && s.W(at.Lane) >= rows[0].Seq {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-moved:
		}
	}
}

// stop ends the chats and returns what they measured.
func (p *probes) stop() []time.Duration {
	p.cancel()
	p.wg.Wait()
	return p.took
}

// measure lets the chats run for a while and returns P99 and P50.
func (p *probes) measure(d time.Duration) (p99, p50 time.Duration) {
	time.Sleep(d)
	took := p.stop()
	return percentile(took, 99), percentile(took, 50)
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)*p/100, len(d)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkCommitToVisible is the time from a commit's answer until W has passed
// it on an idle node: one message at a time.
func BenchmarkCommitToVisible(b *testing.B) {
	n := startNode(b, node.Options{})
	defer n.Stop()
	var took []time.Duration
	var commits time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		d, err := probe(b.Context(), n, "somebody", fmt.Sprint(i))
		if err != nil {
			b.Fatal(err)
		}
		commits += time.Since(began) - d
		took = append(took, d)
	}
	b.ReportMetric(ms(percentile(took, 50)), "visible-p50-ms")
	b.ReportMetric(ms(percentile(took, 99)), "visible-p99-ms")
	b.ReportMetric(ms(commits)/float64(b.N), "commit-ms")
}
