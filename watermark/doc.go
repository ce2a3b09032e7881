// Package watermark decides how far each lane of a shard is complete and makes
// that durable.
//
// [Tracker] is pure: obligations and receipts in, positions out. [Committer] is
// the one writer of a shard's W: it group-commits what the tracker says by
// compare-and-set and publishes it to readers, who only ever see durable
// positions. The tracker trusts that obligations are admitted in log order; the
// committer trusts nothing but the store's answer: a refused write means that
// this process is no longer the owner. Design: docs/design/06-ingest.md, 6.3
// and 6.6.
package watermark
