// Package outbox says which topics are the outbox of a deployment, and carries a
// deployment from one to another with more partitions (design 5.2).
//
// A deployment begins with one topic, PREFIX.outbox, whose number of partitions is
// in the store's immutable deployment row, and stays there. A migration adds a
// topic: the [Layout], one registry row of the store, names them all in the order
// in which writers used them. The steps, each of which can be repeated after a
// crash at any point:
//
//	begin   the new topic is made, and then named in the layout
//	switch  a node that starts with the new number notes that writers switch;
//	        from then on one with the old number is refused
//	seal    the old topic is made to refuse every record, each partition is proven
//	        to, and then its end is read and written down: no later record of it
//	        can be
//	drain   coordinators dispatch the old topic up to its end; no record of the
//	        new one is dispatched before
//	delete  an operator deletes the old topic, after its retention
//
// It trusts the broker to refuse what is larger than a topic's max.message.bytes,
// and the store's compare-and-set. Layout is pure; [Migration] does the I/O, [Log]
// is the outbox's topics as one log for recovery (design 8.4).
package outbox
