package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

// fakeQuarantine holds two records and something that is none.
type fakeQuarantine struct{}

func (fakeQuarantine) entries() []quarantine.Entry {
	return []quarantine.Entry{
		{Offset: 3, Record: quarantine.Record{Reason: records.TooLarge, Detail: "MENTION names 600 users", Topic: "laneway.outbox", Partition: 23, Offset: 4, At: created, Value: []byte("a record")}},
		{Offset: 4, Record: quarantine.Record{Reason: records.DigestConflict, Detail: "seen with another \x1b[31mpayload", Topic: "laneway.dispatch", Partition: 1, Offset: 9, At: created, Value: []byte("another")}},
		{Offset: 5, Err: errors.New("3 bytes")},
	}
}

func (q fakeQuarantine) List(_ context.Context, from int64, limit int) (out []quarantine.Entry, next int64, err error) {
	for _, e := range q.entries() {
		switch {
		case e.Offset < from:
		case len(out) == limit:
			return out, e.Offset, nil
		default:
			out = append(out, e)
		}
	}
	return out, 0, nil
}

func (q fakeQuarantine) Get(_ context.Context, offset int64) (quarantine.Entry, error) {
	for _, e := range q.entries() {
		if e.Offset == offset {
			return e, nil
		}
	}
	return quarantine.Entry{}, fmt.Errorf("%w: offset %d", quarantine.ErrUnknown, offset)
}

func (fakeQuarantine) Retryable(r quarantine.Record) error { return r.Retryable() }

func (q fakeQuarantine) Retry(ctx context.Context, offset int64) (quarantine.Record, int64, error) {
	e, err := q.Get(ctx, offset)
	if err == nil {
		err = e.Record.Retryable()
	}
	return e.Record, 77, err
}

func TestQuarantineIsListedShownAndRetried(t *testing.T) {
	n := newFakeNode(t)
	for name, args := range map[string][]string{"quarantine-list": {"quarantine", "list"}, "quarantine-show": {"quarantine", "show", "4"}} {
		for _, format := range []string{outputTable, outputJSON} {
			r := n.run(append(args, "--output", format)...)
			require.Equal(t, exitOK, r.code, "%s: %s", name, r.err)
			golden(t, name+"."+format, r.out)
		}
	}
	r := n.run("quarantine", "list", "--limit", "1")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.err, "go on with --from 4")
	r = n.run("quarantine", "retry", "3")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "published again: topic laneway.outbox, partition 23, offset 77\n", r.out)
	r = n.run("quarantine", "retry", "4")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "NOT_RETRYABLE")
	r = n.run("quarantine", "show", "9")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "Next: `laneway quarantine list`")
	for _, args := range [][]string{{"list", "--limit", "0"}, {"list", "--from", "-1"}, {"show", "x"}, {"retry", "-1"}, {"retry"}} {
		require.Equal(t, exitUsage, n.run(append([]string{"quarantine"}, args...)...).code, args)
	}
}
