package server

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// quietLogger lets the service log through slog, and be silenced while it
// stops.
type quietLogger struct {
	out   *slog.Logger
	quiet atomic.Bool
}

var (
	_ log.Logger      = (*quietLogger)(nil)
	_ log.SLogWrapper = (*quietLogger)(nil)
)

func newLogger(out *slog.Logger) *quietLogger { return &quietLogger{out: out} }

func (l *quietLogger) SLog() *slog.Logger { return l.out }

func (l *quietLogger) log(lv slog.Level, msg string, tags []tag.Tag) {
	if l.quiet.Load() || !l.out.Enabled(context.Background(), lv) {
		return
	}
	attrs := make([]slog.Attr, len(tags))
	for i, t := range tags {
		attrs[i] = slog.Any(t.Key(), t.Value())
	}
	l.out.LogAttrs(context.Background(), lv, msg, attrs...)
}

func (l *quietLogger) Debug(m string, t ...tag.Tag)  { l.log(slog.LevelDebug, m, t) }
func (l *quietLogger) Info(m string, t ...tag.Tag)   { l.log(slog.LevelInfo, m, t) }
func (l *quietLogger) Warn(m string, t ...tag.Tag)   { l.log(slog.LevelWarn, m, t) }
func (l *quietLogger) Error(m string, t ...tag.Tag)  { l.log(slog.LevelError, m, t) }
func (l *quietLogger) DPanic(m string, t ...tag.Tag) { l.log(slog.LevelError, m, t) }
func (l *quietLogger) Panic(m string, t ...tag.Tag)  { l.log(slog.LevelError, m, t) }
func (l *quietLogger) Fatal(m string, t ...tag.Tag)  { l.log(slog.LevelError, m, t) }
