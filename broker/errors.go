package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Errors of the log. They are wrapped with context and matched with errors.Is.
var (
	// ErrUnreachable: no broker answered in time. Whether a write was applied is
	// then unknown: publish the same bytes again.
	ErrUnreachable = errors.New("broker is unreachable")
	// ErrTruncated: a position outside the log. Nothing resets it: somebody has to
	// decide what the missing records were.
	ErrTruncated = errors.New("position is outside the log")
	// ErrDataLoss: the broker says that it lost records it had acknowledged.
	ErrDataLoss = errors.New("broker reports data loss")
	// ErrTopicMismatch: a topic exists with settings that this deployment cannot
	// work with.
	ErrTopicMismatch = errors.New("topic does not fit the deployment")
	// ErrTopicMissing: a topic or partition does not exist.
	ErrTopicMissing = errors.New("topic or partition does not exist")
	// ErrDirLocked: another process has the embedded log's directory open.
	ErrDirLocked = errors.New("log directory is in use")
	// ErrClosed: the publisher or reader was closed.
	ErrClosed = errors.New("closed")
)

// TruncatedError says which position is outside which log.
type TruncatedError struct {
	Topic      string
	Partition  int32
	Offset     int64 // the position asked for
	Start, End int64 // the log's bounds; -1 when they could not be read
}

// Error implements error.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("%s: offset %d of %s partition %d, which holds %d up to %d",
		ErrTruncated, e.Offset, e.Topic, e.Partition, e.Start, e.End)
}

// Is makes a TruncatedError match ErrTruncated.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// Classify wraps an error of the client with what it means to Laneway.
func Classify(err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case err == nil:
		return nil
	case errors.As(err, &loss):
		return fmt.Errorf("%w: %w", ErrDataLoss, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return fmt.Errorf("%w: %w", ErrTopicMissing, err)
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	default:
		return err
	}
}
