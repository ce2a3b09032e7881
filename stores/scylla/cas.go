package scylla

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
)

// A compare-and-set is one lightweight transaction on a row that has a revision
// and a writer token. It asks for one revision and writes the next, with a token
// that no other compare-and-set has. Its answer may be lost: the coordinator
// timed out, the connection went away after the request was sent. Then nothing
// is known, and the row is read back at serial consistency, which first ends
// whatever is in flight between the replicas:
//
//	the next revision, our token     it was applied
//	the next revision, another token it was not and never will be: moved
//	the revision that we asked for   it was not applied so far. The request may
//	                                 still be on its way, so it is sent again with
//	                                 the same token: only one of the two can be
//	                                 applied, and either is ours
//	any later revision               it may have been applied before those:
//	                                 errOvertaken
//
// What cannot be read back is mailbox.ErrOutcomeUnknown. No answer is made up:
// an unknown outcome is never a conflict and never a success (design 3.3).
type compareAndSet struct {
	what     string // for errors: "move the head of a conversation"
	stmt     string
	values   []any
	revision int64 // asked for; 0: there is no row
	writer   writerToken
	// read returns the row's revision and writer token; revision 0 for no row.
	read func(ctx context.Context) (revision int64, writer []byte, err error)
}

// writerToken tells one compare-and-set from every other.
type writerToken [16]byte

func newWriterToken() writerToken {
	var w writerToken
	_, _ = rand.Read(w[:]) // it never fails
	return w
}

// errOvertaken says that a compare-and-set of unknown outcome was followed by
// others, so that the row does not tell any more whether it was applied.
var errOvertaken = errors.New("other writes followed it")

const (
	// casSends bounds how often one compare-and-set is sent.
	casSends = 3
	// readBackFor bounds how long the outcome of one is looked for: a node that
	// restarts is back within it, and a caller without a deadline gets an answer.
	readBackFor       = 10 * time.Second
	firstReadBackWait = 10 * time.Millisecond
	lastReadBackWait  = 500 * time.Millisecond
)

// compareAndSet runs c. It reports false when the row is not at the revision
// that was asked for and c was not applied.
func (s *Store) compareAndSet(ctx context.Context, c *compareAndSet) (applied bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	var cause error
	for sent := range casSends {
		applied, err := s.lwt(ctx, c)
		switch {
		case err == nil && (applied || sent == 0):
			return applied, nil
		case err == nil:
			// An earlier send may be what moved the row.
		case refused(err) && sent == 0:
			return false, s.wrap(c.what, err)
		default:
			cause = err
		}
		revision, writer, err := s.readBack(ctx, c)
		if err != nil {
			return false, fmt.Errorf("%w: %w; it could not be read back: %w", mailbox.ErrOutcomeUnknown, s.wrap(c.what, cause), s.wrap("read its row", err))
		}
		switch {
		case revision == c.revision+1:
			return bytes.Equal(writer, c.writer[:]), nil
		case revision > c.revision:
			return false, fmt.Errorf("%w: %w: %w", mailbox.ErrOutcomeUnknown, errOvertaken, s.wrap(c.what, cause))
		case revision < c.revision:
			// The caller asked for a revision that the row never had.
			return false, nil
		}
	}
	return false, fmt.Errorf("%w: sent %d times, not applied so far: %w", mailbox.ErrOutcomeUnknown, casSends, s.wrap(c.what, cause))
}

// lwt sends c once. The driver does not retry it, and no client timestamp goes
// with it: the servers' ballots order the writes. A coordinator answers an
// applied one with the single column [applied], and others with the row too.
func (s *Store) lwt(ctx context.Context, c *compareAndSet) (applied bool, err error) {
	q := s.query(ctx, c.stmt, nil)
	defer q.Release()
	q.RetryPolicy(nil).Idempotent(false).DefaultTimestamp(false)
	iter := q.Bind(c.values...).NoSkipMetadata().Iter()
	row := map[string]any{}
	found := iter.MapScan(row)
	if err := iter.Close(); err != nil {
		return false, err
	}
	applied, ok := row["[applied]"].(bool)
	if !found || !ok {
		return false, errors.New("the answer does not say whether it was applied")
	}
	return applied, nil
}

// readBack reads the row until the servers answer, ctx ends or readBackFor is
// over: the connection that lost the answer has to be made again first.
func (s *Store) readBack(ctx context.Context, c *compareAndSet) (revision int64, writer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, readBackFor)
	defer cancel()
	wait := firstReadBackWait
	for {
		if revision, writer, err = c.read(ctx); err == nil || ctx.Err() != nil {
			return revision, writer, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, err
		case <-time.After(wait):
		}
		wait = min(2*wait, lastReadBackWait)
	}
}

// refused reports whether a request failed without having been carried out: it
// was not sent, or the server says that it cannot be run at all.
func refused(err error) bool {
	return errors.Is(err, gocql.ErrNoConnections) || errors.Is(err, gocql.ErrSessionClosed) || errors.Is(err, gocql.ErrNoStreams) || permanent(err)
}
