// Package claims divides the outbox partitions among the coordinator instances
// of a deployment: a static assignment, kept honest by one row of the store.
//
// The row ([Table]) names the instances that are there, which partitions each is
// to work (its own set), and which it works. An instance writes it by
// compare-and-set at a third of the term (its beat). Nobody reads anybody's
// clock: an instance counts as gone when an observer has seen the same beat for a
// whole term of its own monotonic clock, and an instance trusts its claims for
// three quarters of the term from when it asked for its last beat that was
// written. So a claim ends with its holder before anybody else can take it.
//
// What is not allowed is refused: an own set that meets that of a live instance
// ([ErrOverlap]). A partition in no live instance's hands is a gap: it is named,
// and an instance on standby takes it. Claims are about order and about work done
// once; that nothing is lost or wrong when two work one partition all the same,
// one having been paused, follows from what they write (fanout/doc.go).
//
// Table and its steps are pure; [Keeper] does the I/O. Design:
// docs/design/05-fanout.md (5.1).
package claims
