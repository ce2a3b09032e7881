// Package fanout is the coordinator: it consumes the outbox, plans the
// dispatches of every record, and produces them to the dispatch topic.
//
// Planning ([Plan]) is pure: the same record always gives the same dispatches,
// byte for byte, so that a batch produced twice converges on dispatch_id and
// payload_digest. The [Coordinator] owns its outbox partitions by static
// assignment. Each has its own position and its own pipeline; a batch is
// decoded, fenced (durably, before anything is produced), planned, produced with
// acks from all replicas, and only then is its last offset committed. It trusts
// the committed offset as its position and never resets it. Design:
// docs/design/05-fanout.md.
package fanout
