// Package scylla is the mailbox store on ScyllaDB and on other servers that
// speak CQL (design 3.3): one keyspace, served by any number of processes.
//
// It owns the schema (schema/, applied by ApplySchema) and the order of its
// writes. It trusts a quorum of replicas to keep what they acknowledged, and
// nothing else: rows are decoded defensively, other processes may write at any
// time, and every answer may be lost. Core decisions are the domain's.
//
// It is tested on Cassandra 5, single nodes and clusters of three. ScyllaDB itself is
// untried, and so is what only it has: the shard-aware port, tablets, its LWT.
// Nothing here needs a feature of one of the two. ScyllaDB refuses timestamps that
// lie days ahead; those that are sent are times of creation (below).
//
// # Mailboxes
//
//	mailbox_entries  (tenant, user): epoch, offset, type    entry
//	mailbox_days     (shard, lane, day): tenant, user       proof: the user has entries of the day
//	shard_days       (shard): day, epoch, offset            no entry of the day lies above the first row
//	mailbox_bounds   (tenant, user, kind): epoch, offset    trim and gap: the first row counts
//	lane_expired     (shard, lane): kind, day, epoch, offset  up to which day a lane is promoted
//
// The first three have days, a TTL, and compaction windows of one day; what is
// written to them has created_at, in microseconds, as its timestamp. So a replay
// is the same write, wherever and whenever it is made. All other tables of the
// keyspace have no TTL.
//
// AppendBatch writes proofs and maxima of days, then entries, then gives the
// receipt. A user's group is one request to one partition: it is seen whole or
// not at all. Proofs and maxima are written once for each user and day and once
// for each stretch of the log, and remembered (proofs.go): what an append
// usually costs is its entries.
//
// A scan is one slice of one partition. What is in front of it, expired or
// trimmed, was refused by the boundaries and is not read.
//
// # Days and gaps
//
// A day is invisible from its end plus the retention on. Its entries are there
// for a day longer, and that is how a gap is known exactly without a write for
// it: a user's highest seq of an expired day is found by reading down from the
// maximum of that day. Until the day is promoted, readers do so for themselves
// (gaps.go). Promotion (expire.go) does it once for every user who has a proof of
// the day, writes the gap row, which has no TTL, and then moves the lane's row
// on. After that the proofs and the entries may go.
//
// Alternatives that were measured: a day maximum for each user, kept by each
// append in the same request, takes a third of the throughput, and a row for each
// append that has no TTL grows for ever.
//
// Promotion has a day's time to be exact. If the entries are gone, the day's
// maximum stands for them: a reader of that user who has been away since, and who
// missed nothing, is told to rebuild. Proofs live 33 days longer than entries. If
// they are gone too, because no process ran for that long, everything that the
// shard was given until then is taken for lost, and all readers of it rebuild.
// Nothing is ever skipped without a word.
//
// An append to an expired day, or to one that expired while it was written,
// raises the gap row itself. That processes' clocks differ by less than promoteAfter is
// relied on.
//
// # What it costs that nothing is deleted
//
// No CQL DELETE is sent anywhere; a test reads every statement. Entries, proofs
// and day maxima go by their TTL, whole files at a time. A boundary that was
// raised leaves the row that it superseded; that one gets a TTL of an hour then.
// So a mailbox has one boundary row of each kind, and those of the last hour, of
// about 50 bytes each. A lane has one row of about 40 bytes for every day, for
// ever: 64 lanes of 16 shards take 15 MB a year. Trimmed entries take their space
// until their TTL ends.
//
// # Shard state, heads, memberships
//
// Rows that several may change are changed by compare-and-set in lightweight
// transactions (cas.go); all other rows grow only or are written once. Versions
// of memberships are written before their manifest.
//
// # Consistency
//
// Reads and writes take a quorum (local_quorum if the URL says so), LWT the
// serial level that goes with it. Idempotent statements are sent again twice, on
// other servers; others never (connect.go). A timed-out append is an error of its
// item and may be repeated.
//
// What a quorum acknowledged has to be on disk: three copies of each row, or
// commitlog_sync batch or group on a single server. A store that loses power on
// all copies within the servers' sync interval loses what they acknowledged in it.
package scylla
