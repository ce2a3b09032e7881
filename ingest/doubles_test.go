package ingest_test

import (
	"context"
	"errors"
	"sync"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
)

var errUnreadable = errors.New("the bitmap cannot be read")

type audiences struct {
	mu         sync.Mutex
	versions   map[mailbox.GroupVersion][]membership.Member
	unreadable bool
	asked      int
}

func (a *audiences) members(v mailbox.GroupVersion) []membership.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.versions[v]
}

func (a *audiences) readable(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unreadable = !yes
}

// Audience implements ingest.Audiences.
func (a *audiences) Audience(_ context.Context, v mailbox.GroupVersion, manifest mailbox.Digest, shard mailbox.Shard) (*membership.Audience, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.unreadable {
		return nil, errUnreadable
	}
	if manifest != digestOf(v) {
		return nil, mailbox.ErrCorrupt
	}
	out := &membership.Audience{}
	for _, m := range a.versions[v] {
		if at := mailbox.Place(mailbox.User{Tenant: v.Tenant, ID: m.User}, shards); at.Shard == shard {
			out.Members++
			out.Lanes[at.Lane] = append(out.Lanes[at.Lane], m)
		}
	}
	return out, nil
}

type quarantined struct {
	mu  sync.Mutex
	all []records.Reason
}

// Put implements ingest.Quarantine.
func (q *quarantined) Put(_ context.Context, reason records.Reason, _ string, _ int64, _ []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, reason)
	return nil
}

func (q *quarantined) reasons() []records.Reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]records.Reason(nil), q.all...)
}

var errOutOfRange = errors.New("offset out of range")

// memLog is one partition in memory.
type memLog struct {
	mu      sync.Mutex
	start   int64 // records below are gone, but for the oracle
	recs    []admission.Record
	batch   int // records of one poll
	changed chan struct{}
}

func newMemLog() *memLog { return &memLog{changed: make(chan struct{}), batch: 50} }

func (l *memLog) append(at int64, epoch bool, value []byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appendLocked(at, epoch, value)
}

func (l *memLog) appendLocked(at int64, epoch bool, value []byte) int64 {
	o := int64(len(l.recs))
	l.recs = append(l.recs, admission.Record{Offset: o, Timestamp: at, IsEpoch: epoch, Value: value})
	close(l.changed)
	l.changed = make(chan struct{})
	return o
}

func (l *memLog) all() []admission.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]admission.Record(nil), l.recs...)
}

// truncate drops what is below an offset.
func (l *memLog) truncate(start int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = start
}

// cut drops the log's tail from an offset on.
func (l *memLog) cut(end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recs = l.recs[:end:end]
}

// Bounds implements ingest.Log.
func (l *memLog) Bounds(context.Context) (start, end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, int64(len(l.recs)), nil
}

// Epochs implements ingest.Log.
func (l *memLog) Epochs(_ context.Context, from int64) ([]ingest.EpochMark, error) {
	var out []ingest.EpochMark
	for _, r := range l.all() {
		if r.Offset < max(from, l.start) || !r.IsEpoch {
			continue
		}
		if e, err := records.DecodeEpoch(r.Value); err == nil {
			out = append(out, ingest.EpochMark{Epoch: e, Offset: r.Offset})
		}
	}
	return out, nil
}

// AppendEpoch implements ingest.Log.
func (l *memLog) AppendEpoch(_ context.Context, e records.Epoch) (int64, error) {
	return l.append(committedAt, true, e.Encode()), nil
}

// Open implements ingest.Log.
func (l *memLog) Open(_ context.Context, from int64) (ingest.Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.start || from > int64(len(l.recs)) {
		return nil, errOutOfRange
	}
	return &memReader{l: l, at: from}, nil
}

// CommitLag implements ingest.Log.
func (*memLog) CommitLag(context.Context, int64) error { return nil }

type memReader struct {
	l  *memLog
	at int64
}

// Poll implements ingest.Reader.
func (r *memReader) Poll(ctx context.Context) ([]admission.Record, error) {
	for {
		r.l.mu.Lock()
		changed, start := r.l.changed, r.l.start
		var batch []admission.Record
		if r.at >= start && r.at < int64(len(r.l.recs)) {
			batch = append(batch, r.l.recs[r.at:min(r.at+int64(r.l.batch), int64(len(r.l.recs)))]...)
		}
		r.l.mu.Unlock()
		if r.at < start {
			return nil, errOutOfRange
		}
		if len(batch) > 0 {
			r.at += int64(len(batch))
			return batch, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// Close implements ingest.Reader.
func (*memReader) Close() {}
