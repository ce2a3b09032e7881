package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Blobs is the bucket of what is too large for a row.
type Blobs interface {
	// List calls f for the blobs below a prefix, until it returns false.
	List(ctx context.Context, prefix string, f func(key string, size int64) bool) error
	// Delete removes a blob; one that is not there is no error.
	Delete(ctx context.Context, key string) error
}

// LogState is what the job has to know of the logs.
type LogState struct {
	Positions
	Retention LogRetention
	// Frozen are versions that records freeze which Positions leave out: the embedded
	// log never gives up the last record of a partition.
	Frozen []mailbox.GroupVersion
}

// Log is both topics.
type Log interface {
	State(ctx context.Context) (LogState, error)
}

// Config is what a Sweeper works with.
type Config struct {
	Store  mailbox.Store
	Blobs  Blobs
	Log    Log
	Shards int
	// Margin replaces [Margin]; 0 leaves it.
	Margin time.Duration
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: none
}

// Sweeper carries the chain out. Any process may run it, also several at once:
// what they remove is the same.
type Sweeper struct{ Config }

// NewSweeper returns a sweeper.
func NewSweeper(c Config) *Sweeper {
	if c.Margin <= 0 {
		c.Margin = Margin
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{c}
}

// Counts are how much of each kind was removed, or would be.
type Counts struct {
	Progress    int64 `json:"progress"`
	Versions    int64 `json:"versions"`
	Bitmaps     int64 `json:"bitmaps"`
	Blobs       int64 `json:"blobs"`
	BlobBytes   int64 `json:"blob_bytes"`
	Directories int64 `json:"directories"`
}

// Add adds.
func (c *Counts) Add(o Counts) {
	c.Progress += o.Progress
	c.Versions += o.Versions
	c.Bitmaps += o.Bitmaps
	c.Blobs += o.Blobs
	c.BlobBytes += o.BlobBytes
	c.Directories += o.Directories
}

// Window is how far versions may go just now.
type Window struct {
	Freed uint64 `json:"freed"` // see Runs
}

const (
	runsRow     = "runs"
	casAttempts = 16
	// maxRow bounds what is read of a row of the job.
	maxRow = 16 << 20
)

// ErrConflict says that other processes kept changing a row of the job.
var ErrConflict = errors.New("other processes kept changing the retention job's rows")

// Observe checks the chain against the topics as they are, and takes note of where
// the logs are.
func (s *Sweeper) Observe(ctx context.Context, set Settings) (Window, error) {
	for range casAttempts {
		runs, revision, err := s.runs(ctx)
		if err != nil {
			return Window{}, err
		}
		now := s.Now() // before the positions
		logs, err := s.Log.State(ctx)
		if err != nil {
			return Window{}, fmt.Errorf("where the logs are: %w", err)
		}
		if err := Check(set, logs.Retention, s.Margin); err != nil {
			return Window{}, err
		}
		if set.Versions <= 0 {
			return Window{}, nil
		}
		if err := runs.Observe(now, logs.Positions, set.Versions, s.Margin); err != nil {
			return Window{}, err
		}
		switch err := s.put(ctx, runsRow, revision, &runs); {
		case err == nil:
			return Window{Freed: runs.Freed}, nil
		case !again(err):
			return Window{}, err
		}
	}
	return Window{}, ErrConflict
}

func again(err error) bool {
	return (errors.Is(err, mailbox.ErrHeadMoved) || errors.Is(err, mailbox.ErrOutcomeUnknown)) && !errors.Is(err, mailbox.ErrStoreRestarted)
}

func (s *Sweeper) runs(ctx context.Context) (r Runs, revision uint64, err error) {
	revision, err = s.row(ctx, runsRow, &r)
	return r, revision, err
}

// registryPrefix is before the names of the job's rows in the registry.
const registryPrefix = "retention/"

// row reads a row of the job.
func (s *Sweeper) row(ctx context.Context, name string, into any) (revision uint64, err error) {
	data, revision, err := s.Store.LoadRegistry(ctx, registryPrefix+name)
	if err != nil {
		return 0, fmt.Errorf("read the retention row %s: %w", name, err)
	}
	if revision == 0 {
		return 0, nil
	}
	if len(data) > maxRow {
		return 0, fmt.Errorf("%w: the retention row %s has %d bytes", mailbox.ErrCorrupt, name, len(data))
	}
	if err := json.Unmarshal(data, into); err != nil {
		return 0, fmt.Errorf("%w: the retention row %s: %w", mailbox.ErrCorrupt, name, err)
	}
	return revision, nil
}

func (s *Sweeper) put(ctx context.Context, name string, revision uint64, row any) error {
	data, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode the retention row %s: %w", name, err)
	}
	if err := s.Store.CompareAndSetRegistry(ctx, registryPrefix+name, revision, data); err != nil {
		return fmt.Errorf("write the retention row %s: %w", name, err)
	}
	return nil
}

// rows reads manifests.
func (s *Sweeper) rows() membership.Rows { return membership.Rows{Store: s.Store} }
