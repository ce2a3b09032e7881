// Package mailbox is Laneway's domain without I/O: positions ([Seq]), lanes and
// placement, entries and their canonical encoding, event groups, the cutting of
// pages and chunks, and the interfaces that every store implements.
//
// It owns the formats that outlive a process (hashes, ids, entry bytes) and
// trusts nothing it decodes: decoders are bounded and never panic. It imports
// nothing else of Laneway. Design: docs/design/02-data-model.md and
// docs/design/03-mailbox-store.md.
package mailbox
