// Package notify tells those who wait that a mailbox may have something new
// (design 9): the open Watch streams of users, and the feeds of gateways, which
// hear of all their users who are online.
//
// It owns who waits. A shard tells it which dispatches W has passed; of a large
// one those members are chosen who are present (package presence), by the online
// bitmap (membership.Audience). An open Watch makes its user present by itself, so
// that no event, late or lost, keeps it from being told; a feed that cannot be told
// everything is told so. Nothing here is durable: who was not told pulls later.
package notify
