package workers

import (
	"context"
	"log/slog"
)

// routine is the SDK's log handler: it lowers to DEBUG what the SDK says of every
// shard that comes and goes. The node's own log says it once.
type routine struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h routine) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "Started Worker" || r.Message == "Stopped Worker" {
		r.Level = slog.LevelDebug
		if !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h routine) WithAttrs(attrs []slog.Attr) slog.Handler {
	return routine{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h routine) WithGroup(name string) slog.Handler { return routine{h.Handler.WithGroup(name)} }
