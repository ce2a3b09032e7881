// Package metamorphic makes random histories of store operations and runs each
// against several stores at once and against a naive model ([naive.Store]): after
// every step all of them must have given the same answer, entries byte for byte.
//
// It owns the histories: what a step is, how one is made from a seed, how it is
// written to a file and made smaller while it still fails. A history is made up
// front and never looks at an answer, so that it can be run again, cut to pieces
// and run in another order of stores. It trusts the contract only; a difference
// that the contract allows (a mark of a head that is not pending, a gap that a
// trim covers) is taken out of the answers before they are compared, and each such
// place says which sentence allows it.
//
// Design: docs/design/03-mailbox-store.md, docs/design/11-testing.md.
package metamorphic
