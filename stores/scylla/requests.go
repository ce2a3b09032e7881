package scylla

import (
	"context"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// inFlight bounds the requests that one call has on their way at once.
const inFlight = 64

// each calls f for 0 to n-1, several at once, and returns the first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// read prepares a read at the store's consistency. The caller releases it.
func (s *Store) read(ctx context.Context, stmt string, values ...any) *gocql.Query {
	return s.query(ctx, stmt, nil).Bind(values...).Query.Idempotent(true)
}

// readSerial prepares a linearizable read: it sees every compare-and-set that was
// applied, also one whose answer was lost.
func (s *Store) readSerial(ctx context.Context, stmt string, values ...any) *gocql.Query {
	return s.read(ctx, stmt, values...).Consistency(s.target.serial)
}

// exec runs a write that may be repeated: it always writes the same.
func (s *Store) exec(ctx context.Context, op, stmt string, names []string, values ...any) error {
	q := s.query(ctx, stmt, names)
	defer q.Release()
	return s.wrap(op, q.Bind(values...).Query.Idempotent(true).Exec())
}

// write is exec of a statement whose values come by their place.
func (s *Store) write(ctx context.Context, op, stmt string, values ...any) error {
	return s.exec(ctx, op, stmt, nil, values...)
}

// one reads the only row of a query; gocql.ErrNotFound when there is none. The
// driver's own Scan takes an empty page for none, although more may follow.
func one(q *gocql.Query, into ...any) error {
	iter := q.Iter()
	found := iter.Scan(into...)
	if err := iter.Close(); err != nil {
		return err
	}
	if !found {
		return gocql.ErrNotFound
	}
	return nil
}
