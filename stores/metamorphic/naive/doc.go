// Package naive is a mailbox.Store in memory that says what the contract says and
// nothing more: no index, no cache, no file. It keeps everything that was ever
// written in plain lists and answers each question by looking at all of it.
//
// It is the reference that the metamorphic test compares the real stores with, and
// passes the same conformance suite. It is for tests only: its cost grows with the
// square of a history, and it forgets everything with the process. Design:
// docs/design/03-mailbox-store.md, docs/design/11-testing.md.
package naive
