// Package records is the codec of Laneway's log records: outbox records,
// dispatch records and epoch records. It also says which records of an outbox
// partition count after a store has lost its tail ([CommitEpochs]), so that all
// who read the outbox say the same.
//
// It owns the bytes on the topics and trusts none that it reads: every decoder
// is bounded, never panics, and answers a record it refuses with an [Error]
// that carries a stable quarantine [Reason]. It does no I/O. The schema is
// api/laneway/log/v1; a dispatch record has its own decoder, because every
// shard decodes every record of its partition. Design:
// docs/design/02-data-model.md (2.5, 2.6), docs/design/05-fanout.md (5.5) and
// docs/design/08-takeover-rebuild.md (8.4).
package records
