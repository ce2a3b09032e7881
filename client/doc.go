// Package client is the Go client of Laneway and the reference for other
// languages (design 9). It follows SHARD_MOVED, waits as long as a server
// advises, pulls until a mailbox is caught up, watches with the cursor kept, and
// turns every failure into an [Error] with its stable reason.
//
// It trusts a server's answers and nothing else: a cursor moves only after the
// caller has handled the page it belongs to, so that a crash in between repeats
// a page (deduplicate by event_id) and never loses one.
package client
