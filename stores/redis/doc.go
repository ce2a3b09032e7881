// Package redis is the mailbox store on one Redis server (design 3.2).
//
// It owns the layout of the keys and the scripts under lua/ that write them. It
// trusts the server to run a script whole or not at all and to log its writes as
// one, and checks that it is a server that can be relied on; it trusts no bytes
// in it: what a script meets is validated before anything is written, and what
// does not fit is mailbox.ErrCorrupt with a word that names it (errors.go).
//
// # Keys of a mailbox
//
// Ids are escaped (keys.go). Numbers of days are days since 1970, expiries are
// Unix seconds, seqs are 16 hex digits. shardkeys.go has the keys of shards,
// conversations and groups.
//
//	mailbox:{tenant}:{user}:e{epoch}:{day}  zset  score offset, member entry; with EXPIREAT
//	mbmeta:{tenant}:{user}                  hash  retention_format_version, user_trim_seq,
//	                                              expired_gap_boundary, epochs; expired_through
//	                                              and next_expiry, the last and the next expiry
//	mbmeta:{tenant}:{user}:e{epoch}         hash  retention_format_version, d{day} its expiry
//	mbdays:{tenant}:{user}:e{epoch}         zset  member day, score the day's expiry
//	mbseqbucket:{tenant}:{user}:e{epoch}    zset  member seq, score the expiry of its day
//	lanedays:{shard}:{lane}                 hash  day to the highest seq of the lane
//	mbwalk:{day}                            who freed idle mailboxes that day; expires
//
// Only the entries expire by themselves. The rest is their proof: when Redis has
// dropped a day, its highest seq in mbseqbucket is what the user missed, and the
// next write to the mailbox moves it into the gap boundary and forgets the day.
// Reads compute the same without writing. A day's expiry is fixed by its first
// entry; the time that it is compared with is the later of the client's and the
// server's, because Redis drops keys by its own clock.
//
// # What is found damaged
//
// A write, and every read, compares the rows of a mailbox with each other. The
// word behind mailbox.ErrCorrupt says what does not fit:
//
//	WRONG_TYPE              a key of another type
//	WRONG_VERSION           retention_format_version is not 4, or missing
//	EPOCH_WITHOUT_MAILBOX   an epoch's row that the mailbox row does not list
//	MISSING_PROOF           an active day that mbdays lacks
//	PROOF_WITHOUT_DAY       a day in mbdays that is not active
//	PROOF_WITHOUT_BUCKET    the entries of a live day are gone
//	BUCKET_WITHOUT_PROOF    entries of a day that is not active
//	NO_EXPIRY, WRONG_EXPIRY entries that would not expire when their day does
//	EXPIRED_DAY_PRESENT     entries that did not expire when their day did
//	TOO_MANY_DAYS           more than 31 active days of an epoch
//	MISSING_IDENTITY        mbseqbucket, or its seqs of an expired day, are gone
//	CROSS_DAY_REPLAY        a seq that is in another day already
//	CHANGED_ENTRY           a seq that has other bytes already
//	BAD_ENTRY, FOREIGN_ENTRY, WRONG_SCORE, WRONG_ORDER, OVERSIZED_GROUP
//	                        entries that a scan can't serve
//
// One exception for speed: an append of one new group to a day that the mailbox
// has reads what mbmeta says of the day and leaves mbdays to everybody else.
//
// # Cost
//
// Such an append takes seven commands within a script, of which two write. On two
// cores that were otherwise idle, with appendfsync everysec, some 33,000 to 45,000
// entries a second were appended where bare pipelines of ZADD added 155,000 to
// 195,000 (one key of the five that are kept), and pages of 1,000 entries were
// read at half the speed of a bare ZRANGE (append_bench_test.go).
package redis
