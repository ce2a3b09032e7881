package redis

import (
	"encoding/binary"
	"strconv"

	"github.com/laneway/laneway/mailbox"
)

// The keys of shards, conversations and groups. Ids are escaped by Store.key.
//
//	shard:{shard}                              hash    epoch, token, owner, address, lease (Unix ms), boundaries, F, incarnation
//	wm:{shard}:{lane}                          hash    W, W_floor
//	dp:{shard}:{dispatch}                      hash    begun (identity and manifest), row, marks, max_offset, last_seen
//	dpindex:{shard}                            zset    member = seq, dispatch; all scores are 0
//	steps:{shard}:{nonce}                      string  steps made of a large batch; gone with the last, or after a minute
//	fence:{shard}                              hash    field = conversation
//	outboxfence:{partition}                    hash    field = conversation
//	head:{tenant}:{conversation}               string  head row
//	pendingheads                               zset    member = conversation; all scores are 0
//	committed:{tenant}:{conversation}:{sender}:{client message} string
//	version:{tenant}:{group}:{generation}:{version}             string  manifest
//	bitmap:{tenant}:{group}:{generation}:{version}:{shard}      string
//	directory:{tenant}:{group}:{generation}:{shard}             zset    score = slot, member = slot, join seq, user
//	latest:{tenant}:{group}:{generation}       hash    field = user, value = slot, join seq
//	commitstate                                string  head row of the commit state
//	retention:{row}                            string  head row of the retention job
//	deployment                                 string
//	settled                                    string: the run whose file was made anew
//
// Seqs, slots and join seqs inside values are fixed-width lower-case hex: they
// sort as they count, and Lua's doubles cannot round them.

func decimal[T ~int32 | ~uint8 | ~uint16 | ~uint32 | ~uint64](n T) string {
	return strconv.FormatUint(uint64(n), 10)
}

func (s *Store) shardKey(n mailbox.Shard) string { return s.key("shard", decimal(n)) }

func (s *Store) watermarkKey(n mailbox.Shard, lane mailbox.Lane) string {
	return s.key("wm", decimal(n), decimal(lane))
}

// shardKeys are the keys of a shard's state and of its lanes' watermarks.
func (s *Store) shardKeys(n mailbox.Shard) []string {
	keys := make([]string, 1, 1+mailbox.LaneCount)
	keys[0] = s.shardKey(n)
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		keys = append(keys, s.watermarkKey(n, lane))
	}
	return keys
}

func (s *Store) progressKey(n mailbox.Shard, id mailbox.DispatchID) string {
	return s.key("dp", decimal(n), id.String())
}

func (s *Store) progressIndexKey(n mailbox.Shard) string { return s.key("dpindex", decimal(n)) }

func (s *Store) fenceKey(n mailbox.Shard) string { return s.key("fence", decimal(n)) }

func (s *Store) outboxFenceKey(partition int32) string {
	return s.key("outboxfence", decimal(partition))
}

func (s *Store) headKey(c mailbox.Conversation) string { return s.key("head", c.Tenant, c.ID) }

func (s *Store) pendingHeadsKey() string { return s.key("pendingheads") }

func (s *Store) committedKey(c mailbox.Conversation, sender, clientMessageID string) string {
	return s.key("committed", c.Tenant, c.ID, sender, clientMessageID)
}

func (s *Store) versionKey(v mailbox.GroupVersion) string {
	return s.key("version", v.Tenant, v.ID, decimal(v.Generation), decimal(v.Version))
}

func (s *Store) bitmapKey(v mailbox.GroupVersion, n mailbox.Shard) string {
	return s.key("bitmap", v.Tenant, v.ID, decimal(v.Generation), decimal(v.Version), decimal(n))
}

func (s *Store) directoryKey(g mailbox.Group, generation uint64, n mailbox.Shard) string {
	return s.key("directory", g.Tenant, g.ID, decimal(generation), decimal(n))
}

func (s *Store) latestKey(g mailbox.Group, generation uint64) string {
	return s.key("latest", g.Tenant, g.ID, decimal(generation))
}

func (s *Store) commitStateKey() string { return s.key("commitstate") }

func (s *Store) registryKey(name string) string { return s.key("registry", name) }

func (s *Store) deploymentKey() string { return s.key("deployment") }

func (s *Store) settledKey() string { return s.key("settled") }

// conversationMember names a conversation inside a value: the length of the
// tenant's name, so that no two conversations have one name, then both names.
func conversationMember(c mailbox.Conversation) string {
	b := binary.AppendUvarint(make([]byte, 0, 2+len(c.Tenant)+len(c.ID)), uint64(len(c.Tenant)))
	return string(append(append(b, c.Tenant...), c.ID...))
}

// conversationOfMember reads what conversationMember wrote, or reports false.
func conversationOfMember(member string) (mailbox.Conversation, bool) {
	n, read := binary.Uvarint([]byte(member))
	if read <= 0 || n > uint64(len(member)-read) {
		return mailbox.Conversation{}, false
	}
	rest := member[read:]
	c := mailbox.Conversation{Tenant: rest[:n], ID: rest[n:]}
	return c, c.Check() == nil
}
