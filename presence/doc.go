// Package presence keeps which users have a device online (design 4). [Table] is
// pure, with time as a parameter; package presence/topic feeds it from the
// presence topic.
//
// It trusts nobody: events come twice, late, out of order or never. Of a device the
// newest event counts, and an event counts for a limited time, so that a lost one
// heals. Nothing here is durable and nothing durable depends on it: a wrong
// answer delays a notification, or makes one too many, and never costs an entry.
package presence
