package metamorphic_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/metamorphic"
	"github.com/laneway/laneway/stores/storetest"
)

// wrong is a store with a mistake in it.
type wrong struct {
	mailbox.Store

	append   func(inner mailbox.Store, ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult
	scan     func(inner mailbox.Store, ctx context.Context, q mailbox.Scan) (mailbox.Page, error)
	truncate func(inner mailbox.Store, ctx context.Context, u mailbox.User, s mailbox.Seq) error
	mark     func(inner mailbox.Store, ctx context.Context, own mailbox.Ownership, d []mailbox.Durable) ([]mailbox.Marked, error)
}

func (w *wrong) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	if w.append != nil {
		return w.append(w.Store, ctx, chunks)
	}
	return w.Store.AppendBatch(ctx, chunks)
}

func (w *wrong) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	if w.scan != nil {
		return w.scan(w.Store, ctx, q)
	}
	return w.Store.RangeScan(ctx, q)
}

func (w *wrong) TruncateBefore(ctx context.Context, u mailbox.User, s mailbox.Seq) error {
	if w.truncate != nil {
		return w.truncate(w.Store, ctx, u, s)
	}
	return w.Store.TruncateBefore(ctx, u, s)
}

func (w *wrong) MarkChunks(ctx context.Context, own mailbox.Ownership, d []mailbox.Durable) ([]mailbox.Marked, error) {
	if w.mark != nil {
		return w.mark(w.Store, ctx, own, d)
	}
	return w.Store.MarkChunks(ctx, own, d)
}

// entrant is the model with the mistake in it.
func (w wrong) entrant() metamorphic.Entrant {
	return metamorphic.Entrant{Name: "wrong", Open: func(t *testing.T, c storetest.Config) *storetest.Subject {
		s := metamorphic.Model.Open(t, c)
		own := w
		own.Store = s.Store
		same := func() mailbox.Store { return &own }
		s.Store, s.Reopen, s.Crash = &own, same, same
		return s
	}}
}

// every returns a function that is true once in n calls.
func every(n int) func() bool {
	calls := 0
	return func() bool {
		calls++
		return calls%n == 0
	}
}

// TestWrongStoreIsFound: the comparison sees small and rare mistakes, and a failing
// history becomes a short one that still shows them.
func TestWrongStoreIsFound(t *testing.T) {
	for name, mistake := range map[string]func() wrong{
		"drops one group in 500": func() wrong {
			now := every(500)
			return wrong{append: func(inner mailbox.Store, ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
				for i := range chunks {
					if now() {
						short := chunks[i]
						short.Recipients = short.Recipients[1:]
						chunks[i] = short
					}
				}
				return inner.AppendBatch(ctx, chunks)
			}}
		},
		"cuts a page one group early": func() wrong {
			return wrong{scan: func(inner mailbox.Store, ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
				if q.Limits.MaxItems > 8 {
					q.Limits.MaxItems--
				}
				return inner.RangeScan(ctx, q)
			}}
		},
		"reads one entry past the limit": func() wrong {
			return wrong{scan: func(inner mailbox.Store, ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
				if q.Limits.MaxItems > 8 {
					q.Limits.MaxItems++
				}
				return inner.RangeScan(ctx, q)
			}}
		},
		"takes after as closed": func() wrong {
			return wrong{scan: func(inner mailbox.Store, ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
				if q.After > 0 && q.After.Offset() > 0 {
					q.After--
				}
				return inner.RangeScan(ctx, q)
			}}
		},
		"forgets one trim in 20": func() wrong {
			now := every(20)
			return wrong{truncate: func(inner mailbox.Store, ctx context.Context, u mailbox.User, s mailbox.Seq) error {
				if now() {
					return nil
				}
				return inner.TruncateBefore(ctx, u, s)
			}}
		},
		"trims one group too many": func() wrong {
			return wrong{truncate: func(inner mailbox.Store, ctx context.Context, u mailbox.User, s mailbox.Seq) error {
				return inner.TruncateBefore(ctx, u, s+1)
			}}
		},
		"loses one mark in 20": func() wrong {
			now := every(20)
			return wrong{mark: func(inner mailbox.Store, ctx context.Context, own mailbox.Ownership, d []mailbox.Durable) ([]mailbox.Marked, error) {
				if now() {
					if _, err := inner.MarkChunks(ctx, own, d[:len(d)-1]); err != nil {
						return nil, err
					}
					var out []mailbox.Marked
					for _, x := range d {
						out = append(out, mailbox.NewMarked(x.Chunk()))
					}
					return out, nil
				}
				return inner.MarkChunks(ctx, own, d)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := metamorphic.Generate(1, 10_000)
			w := mistake()
			d := metamorphic.Run(t, h, w.entrant())
			require.NotNil(t, d)
			t.Logf("found at step %d", d.Step)
			// A mistake that counts calls begins to count anew in each try.
			small, d := metamorphic.Shrink(t, h, d, 120, metamorphic.Entrant{Name: "wrong", Open: func(t *testing.T, c storetest.Config) *storetest.Subject {
				again := mistake()
				return again.entrant().Open(t, c)
			}})
			require.Less(t, len(small.Steps), len(h.Steps))
			t.Logf("%d steps are left: %s", len(small.Steps), d)
			path := filepath.Join(t.TempDir(), "failing.json")
			require.NoError(t, small.Save(path))
			again, err := metamorphic.Load(path)
			require.NoError(t, err)
			require.Equal(t, small, again)
			one := mistake()
			require.Equal(t, d, metamorphic.Run(t, again, one.entrant()), "the file shows the same")
		})
	}
}
