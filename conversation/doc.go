// Package conversation orders what happens in a conversation: commits, joins,
// leaves and imports. It owns the conversation head, the one row in which
// conversation_seq, membership version, slot high-water mark and the pending
// record move together by compare-and-set (design 4 "One head", 9.1).
//
// A request runs these steps:
//
//	read head → finish a pending record → look up the client message
//	  → compute → compare-and-set the head with the record as pending (durable)
//	  → write the version's rows (membership changes) → produce (broker acked)
//	  → write the look-up row → clear the pending record → answer
//
// From the compare-and-set on, the record is decided: its bytes and its look-up
// row are in the head, and nobody assigns a later seq before they are produced
// and written. Whoever finds a pending record (a retry, the next request, the
// sweeper, another process) finishes it with the same bytes. So a crash at any
// step leaves no hole, no reorder and nothing given out twice; at worst the
// outbox holds the same bytes twice, which the coordinator recognises.
//
// What may be trusted: the head cached in memory is checked by the next
// compare-and-set; a look-up made after reading a head without a pending record
// is complete as long as that head has not moved, which the same
// compare-and-set proves. Turns within the process ([Service]) only avoid
// contention; correctness does not rest on them.
//
// A group and its conversation have the same id. Design:
// docs/design/04-membership.md and docs/design/09-api-cli.md.
package conversation
