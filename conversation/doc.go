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
// A renumbering (renumber.go) is the one thing that takes longer than a request
// may keep others waiting: it closes the group in the head first, durably and
// until a deadline, and writers are told to come again. The closing decides
// nothing; the compare-and-set that follows does, and proves that the head did not
// move.
//
// # A store that may lose its tail
//
// Such a store (one with an Incarnation: Redis) can come back without its last
// acknowledged writes; what is left is a prefix of them, for stores/redis sees to
// it that nothing of what is lost comes to life at a later restart. The outbox
// loses nothing that it acknowledged. After every restart of the store,
// [Service.Recover] makes the store equal to the outbox before anything is
// committed (design 8.4):
//
//	finish the pending records that survived → read each outbox partition from the
//	last heartbeat that survived to its end → reserve an epoch n in the commit state
//	→ put a marker n on every partition → read up to the markers → write the commit
//	state of n → drop what is remembered → open
//
// A record behind a marker n whose epoch is smaller (and not 0: that is a writer
// who does not rely on such a store) does not count: the coordinator drops it,
// and so does a later recovery. Both go by the markers below the record's offset
// and nothing else ([records.CommitEpochs]). In this order it holds that:
//
//   - Whoever was answered is on the outbox, below every marker that drops it.
//     Success is answered after a store operation that came after the broker's
//     acknowledgement (the look-up row; for "nothing changed" the durable write of
//     the head), and the incarnation in which the commit was decided has carried
//     that operation out. A marker is made by a process that has met a later
//     incarnation, so after the earlier one ended, so behind the record. A retry
//     that finds a look-up row is no exception: the row was written after the
//     acknowledgement.
//   - A decision that was lost, with its record on the outbox below the marker,
//     counts: head, version and look-up row are made from the record. It may not
//     have been answered; its retry is told that it was done.
//   - A decision that was lost, with its record landing behind the marker, does
//     not count: its seq, version and slots are given to others. Its writer's next
//     store operation is refused (mailbox.ErrStoreRestarted, never tried again
//     here), so that it answers no success; the client's retry is a new commit.
//   - A decision that survived as pending is produced before the marker, by its
//     own bytes. A second copy of it, in flight from before, may land behind the
//     marker and is dropped. A recovery that is interrupted and loses the clearing
//     again finds it pending again; that copy comes behind the first marker and is
//     dropped, the first copy lies before it.
//   - A store operation of an old process reaches no later incarnation: every
//     connection is checked before it carries one. What an old process can still
//     write is blobs, whose names hold their content's digest, and records.
//   - Epochs. A writer has epoch n only when the commit state of n was written,
//     which needs its markers acknowledged on every partition. So a recovery, which
//     takes the largest epoch that it finds in the state and on the outbox and adds
//     one, is above every writer that ever was. One incarnation reserves one
//     epoch, by compare-and-set; several processes in it share that. A recovery of
//     an earlier incarnation has reserved from what it found then, so from no more,
//     so no larger an epoch: its markers, landing late, move nothing.
//   - Recoveries at once, and one at once with the first commits of a process that
//     is open already: heads are only raised, by compare-and-set, and versions and
//     rows are what they are whoever writes them.
//   - A second loss during or after a recovery: the commit state that survives
//     names an epoch and the offsets that go with it. Reading from there meets the
//     same markers and drops the same records.
//   - The heartbeat: see [Service.Beat] for why the ends are read before the row.
//
// Two servers that serve at the same time under one address are outside of this:
// the old one would go on answering its writers.
//
// A group and its conversation have the same id. Design:
// docs/design/04-membership.md, docs/design/08-takeover-rebuild.md (8.4) and
// docs/design/09-api-cli.md.
package conversation
