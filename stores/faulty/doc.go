// Package faulty puts faults between a shard and its store, for tests.
//
// A [Store] wraps any mailbox.Store. A [Fault] says which calls of an operation
// it is for (by dispatch, lane and chunk if need be) and what becomes of them:
// they fail, hang, wait, are applied with their answer lost, or take the whole
// store down as the end of a process does. Each fault counts its hits, tells of
// the first, and is healed by a call; calls that hang in it then go on. Nothing
// is random and nothing sleeps: a test decides what breaks and waits for the
// event. A [Counting] store counts calls instead, and a [Run] is a store that may
// come back without its last writes. Design: docs/design/11-testing.md.
package faulty
