// Package membership owns group membership: slots, immutable versions with a
// Roaring bitmap per shard, the planning of changes, and the caches through
// which a coordinator ([Snapshots]) and a node ([NodeCache]) read frozen
// versions.
//
// The conversation head decides which version is the current one (package
// conversation); a version's rows are written after that and never change, so
// everything here may be cached for ever. Nothing read from a store or a blob
// is trusted: a manifest must have the digest that the record froze, a bitmap
// the digest, cardinality and slot range that its manifest states. What fails
// is mailbox.ErrCorrupt naming the blob; what cannot be read right now is
// [ErrMembershipSnapshotUnavailable].
//
// Planning ([Plan], [Apply], [PlanRenumbering], [ApplyRenumbering]) is pure: the
// same change on the same version gives the same bytes, whoever computes it.
//
// A renumbering gives a group a new generation of slots. The generation is part
// of every key and of every manifest, so that a bit is never read against
// another generation's directory; what was frozen before stays as it is.
// Design: docs/design/04-membership.md.
package membership
