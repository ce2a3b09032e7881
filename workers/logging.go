package workers

import (
	"context"
	"log/slog"
	"strings"

	"github.com/laneway/laneway/internal/sparselog"
)

// routine is the SDK's log handler. It lowers to DEBUG what the SDK says of every
// shard that comes and goes, which the node's own log says once. Of each kind of
// warning it lets one line a second through: while the store is away every attempt
// of every chunk fails, and the SDK says so of each.
type routine struct {
	slog.Handler
	sparse *sparselog.Log // one for all that is derived
}

func newRoutine(h slog.Handler) routine { return routine{h, &sparselog.Log{}} }

// Handle implements [slog.Handler].
func (h routine) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "Started Worker" || r.Message == "Stopped Worker" {
		r.Level = slog.LevelDebug
		if !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	if r.Level >= slog.LevelWarn {
		held, ok := h.sparse.Pass(kindOf(&r))
		if !ok {
			return nil
		}
		if held > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("not_logged_before", held))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// kindOf is what a line is about. Kinds are few: some messages of the SDK end with
// an error, which doesn't count, and a deployment has some ten types of activity.
func kindOf(r *slog.Record) string {
	kind, _, _ := strings.Cut(r.Message, ":")
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "ActivityType" {
			return true
		}
		kind += " " + a.Value.String()
		return false
	})
	return kind
}

// WithAttrs implements [slog.Handler].
func (h routine) WithAttrs(attrs []slog.Attr) slog.Handler {
	return routine{h.Handler.WithAttrs(attrs), h.sparse}
}

// WithGroup implements [slog.Handler].
func (h routine) WithGroup(name string) slog.Handler {
	return routine{h.Handler.WithGroup(name), h.sparse}
}
