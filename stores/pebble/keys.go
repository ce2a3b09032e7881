package pebble

import (
	"bytes"
	"encoding/binary"

	"github.com/laneway/laneway/mailbox"
)

// The tables: first byte of every key (see the package comment).
const (
	tableEntry        = 'e'
	tableDayMax       = 'm'
	tableExpiredMax   = 'x'
	tableBounds       = 'b'
	tableProgress     = 'p'
	tableDispatch     = 'd'
	tableFence        = 'f'
	tableOutboxFence  = 'g'
	tableOwnership    = 's'
	tableWatermarks   = 'w'
	tableFrontier     = 'o'
	tableHead         = 'h'
	tablePending      = 'q'
	tableCommitted    = 'c'
	tableVersion      = 'v'
	tableBitmap       = 'B'
	tableDirectory    = 'D'
	tableLatestSlot   = 'L'
	tableSetting      = '!'
	progressPartRow   = 0
	progressPartSeen  = 1
	progressPartMarks = 2

	idEnd        = 0x00
	entryKeyHead = 1 + 4 // table and day
	entryKeyTail = 8 + 1 // seq and type
)

func appendID(b []byte, id string) []byte { return append(append(b, id...), idEnd) }

// appendText appends a string that may hold any byte: zero bytes are escaped,
// so that the terminator stays unique.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		b = append(b, s[i])
		if s[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0, 1)
}

// dayBits maps days to uint32 in order; days before 1970 sort first.
func dayBits(d mailbox.Day) uint32 { return uint32(d) ^ 1<<31 }

func dayOfBits(v uint32) mailbox.Day { return mailbox.Day(v ^ 1<<31) }

func appendDayKey(b []byte, d mailbox.Day) []byte {
	return binary.BigEndian.AppendUint32(append(b, tableEntry), dayBits(d))
}

func mailboxPrefix(d mailbox.Day, u mailbox.User) []byte {
	return appendID(appendID(appendDayKey(nil, d), u.Tenant), u.ID)
}

// entrySeq reads the seq from the end of an entry's key.
func entrySeq(key []byte) (mailbox.Seq, bool) {
	n := splitKey(key)
	if len(key)-n != entryKeyTail {
		return 0, false
	}
	return mailbox.Seq(binary.BigEndian.Uint64(key[n:])), true
}

// mailboxOfKey reads the user from an entry's key.
func mailboxOfKey(key []byte) (mailbox.User, bool) {
	rest := key[min(entryKeyHead, len(key)):]
	t := bytes.IndexByte(rest, idEnd)
	if t < 0 {
		return mailbox.User{}, false
	}
	u := bytes.IndexByte(rest[t+1:], idEnd)
	if u < 0 {
		return mailbox.User{}, false
	}
	return mailbox.User{Tenant: string(rest[:t]), ID: string(rest[t+1 : t+1+u])}, true
}

func boundsKey(u mailbox.User) []byte {
	return appendID(appendID([]byte{tableBounds}, u.Tenant), u.ID)
}

func shardKey(table byte, s mailbox.Shard) []byte {
	return binary.BigEndian.AppendUint32([]byte{table}, uint32(s))
}

func dayMaxKey(b []byte, d mailbox.Day, s mailbox.Shard) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tableDayMax), dayBits(d))
	return binary.BigEndian.AppendUint32(b, uint32(s))
}

func appendProgressKey(b []byte, s mailbox.Shard, seq mailbox.Seq, part byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tableProgress), uint32(s))
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	return append(b, part)
}

func appendDispatchKey(b []byte, s mailbox.Shard, id mailbox.DispatchID) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tableDispatch), uint32(s))
	return append(b, id[:]...)
}

func fenceKey(table byte, n uint32, c mailbox.Conversation) []byte {
	b := binary.BigEndian.AppendUint32([]byte{table}, n)
	return appendID(appendID(b, c.Tenant), c.ID)
}

func conversationKey(table byte, c mailbox.Conversation) []byte {
	return appendID(appendID([]byte{table}, c.Tenant), c.ID)
}

func committedKey(c mailbox.Conversation, sender, clientMessageID string) []byte {
	return appendText(appendText(conversationKey(tableCommitted, c), sender), clientMessageID)
}

func generationKey(table byte, g mailbox.Group, generation uint64) []byte {
	b := appendID(appendID([]byte{table}, g.Tenant), g.ID)
	return binary.BigEndian.AppendUint64(b, generation)
}

func versionKey(table byte, v mailbox.GroupVersion) []byte {
	return binary.BigEndian.AppendUint64(generationKey(table, v.Group, v.Generation), v.Version)
}

func settingKey(name string) []byte { return append([]byte{tableSetting}, name...) }

// prefixEnd returns the first key after all keys that start with prefix.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// conversationOfKey reads the conversation from a key that ends with it.
func conversationOfKey(key []byte) (mailbox.Conversation, bool) {
	if len(key) < 1 {
		return mailbox.Conversation{}, false
	}
	tenant, rest, ok := bytes.Cut(key[1:], []byte{idEnd})
	id, rest, ok2 := bytes.Cut(rest, []byte{idEnd})
	return mailbox.Conversation{Tenant: string(tenant), ID: string(id)}, ok && ok2 && len(rest) == 0
}
