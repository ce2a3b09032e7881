// Package broker is Laneway's access to its log: the topics and their settings,
// the embedded single-process log, publishing to the outbox, and reading the
// dispatch topic.
//
// It owns topic names and client settings. It trusts a broker to keep what it
// has acknowledged, and nothing else: a position is never reset on its own, a
// position outside the log is [ErrTruncated], a data-loss report is
// [ErrDataLoss], and both stop their caller. Design: docs/design/02-data-model.md
// (2.1), docs/design/05-fanout.md (5.1) and docs/design/06-ingest.md (6.1).
package broker
