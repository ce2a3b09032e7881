package scylla

import (
	"encoding/binary"
	"strings"

	"github.com/scylladb/gocqlx/v2/qb"
	"github.com/scylladb/gocqlx/v2/table"
)

// builder is any of gocqlx's query builders.
type builder interface {
	ToCql() (stmt string, names []string)
}

// build returns the CQL of a statement. Its values are bound by place: in the
// order of its columns or conditions, with what USING takes at the end.
func build(b builder) string {
	stmt, _ := b.ToCql()
	return strings.TrimSpace(stmt)
}

// routingKey is the partition key of a statement that names several partitions:
// the driver cannot tell where to send it, and looks into the schema each time.
func routingKey(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		var v []byte
		switch p := p.(type) {
		case string:
			v = []byte(p)
		case []byte:
			v = p
		case int:
			v = binary.BigEndian.AppendUint32(nil, uint32(p))
		case int8:
			v = []byte{byte(p)}
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(v)))
		b = append(append(b, v...), 0)
	}
	return b
}

// The tables of schema/0001_mailbox.cql.
var (
	entriesTable = table.New(table.Metadata{
		Name:    "mailbox_entries",
		Columns: []string{"tenant_id", "user_id", "epoch", "log_offset", "event_type", "entry"},
		PartKey: []string{"tenant_id", "user_id"},
		SortKey: []string{"epoch", "log_offset", "event_type"},
	})
	proofsTable = table.New(table.Metadata{
		Name:    "mailbox_days",
		Columns: []string{"shard", "lane", "day", "tenant_id", "user_id"},
		PartKey: []string{"shard", "lane", "day"},
		SortKey: []string{"tenant_id", "user_id"},
	})
	shardDaysTable = table.New(table.Metadata{
		Name:    "shard_days",
		Columns: []string{"shard", "day", "epoch", "log_offset"},
		PartKey: []string{"shard"},
		SortKey: []string{"day", "epoch", "log_offset"},
	})
	boundsTable = table.New(table.Metadata{
		Name:    "mailbox_bounds",
		Columns: []string{"tenant_id", "user_id", "kind", "epoch", "log_offset", "raised_at"},
		PartKey: []string{"tenant_id", "user_id", "kind"},
		SortKey: []string{"epoch", "log_offset"},
	})
	laneExpiredTable = table.New(table.Metadata{
		Name:    "lane_expired",
		Columns: []string{"shard", "lane", "kind", "day", "epoch", "log_offset"},
		PartKey: []string{"shard", "lane"},
		SortKey: []string{"kind", "day", "epoch", "log_offset"},
	})
)

const position = "(epoch,log_offset)"

// Entries.
var (
	insertEntry = build(entriesTable.InsertBuilder().TimestampNamed("created_at"))
	// A page in seq order: after is open or, for the first entry that a trim left,
	// its predecessor; upTo is closed.
	selectPage = build(qb.Select(entriesTable.Name()).Columns("epoch", "log_offset", "event_type", "entry").
			Where(qb.Eq("tenant_id"), qb.Eq("user_id"), qb.GtTuple(position, 2), qb.LtOrEqTuple(position, 2)))
	// The days of a user's entries, highest seq first.
	selectDays = build(qb.Select(entriesTable.Name()).Columns("epoch", "log_offset", "writetime(entry)").
			Where(qb.Eq("tenant_id"), qb.Eq("user_id"), qb.GtTuple(position, 2), qb.LtOrEqTuple(position, 2)).
			OrderBy("epoch", qb.DESC).OrderBy("log_offset", qb.DESC).OrderBy("event_type", qb.DESC))
)

// Day proofs and maxima.
var (
	insertProof    = build(proofsTable.InsertBuilder().TimestampNamed("created_at"))
	insertShardDay = build(shardDaysTable.InsertBuilder().TimestampNamed("created_at"))
	// The days of a shard with the highest seq of each: rows come highest first,
	// and a group is its first row.
	selectShardDays = build(qb.Select(shardDaysTable.Name()).Columns("epoch", "log_offset").
			Where(qb.Eq("shard"), qb.Gt("day"), qb.LtOrEq("day")).GroupBy("day"))
	selectProofs = build(qb.Select(proofsTable.Name()).Columns("day").
			Where(qb.Eq("shard"), qb.Eq("lane"), qb.In("day"), qb.Eq("tenant_id"), qb.Eq("user_id")))
	selectProven = build(qb.Select(proofsTable.Name()).Columns("tenant_id", "user_id").
			Where(qb.Eq("shard"), qb.Eq("lane"), qb.Eq("day")))
)

// Boundaries and what is known of a lane's expired days.
var (
	insertBound    = build(boundsTable.InsertBuilder())
	supersedeBound = build(boundsTable.InsertBuilder().TTLNamed("ttl"))
	// Trim and gap in one request: the highest row of each.
	selectBounds = build(qb.Select(boundsTable.Name()).Columns("kind", "epoch", "log_offset").
			Where(qb.Eq("tenant_id"), qb.Eq("user_id"), qb.InLit("kind", "(0,1)")).LimitPerPartition(1))
	selectBoundRows = build(qb.Select(boundsTable.Name()).Columns("epoch", "log_offset", "ttl(raised_at)").
			Where(qb.Eq("tenant_id"), qb.Eq("user_id"), qb.Eq("kind")).Limit(supersededAtOnce))
	insertLaneExpired  = build(laneExpiredTable.InsertBuilder())
	selectShardExpired = build(qb.Select(laneExpiredTable.Name()).Columns("lane", "day").
				Where(qb.Eq("shard"), qb.In("lane"), qb.Eq("kind")).LimitPerPartition(1))
	selectLaneExpired = build(qb.Select(laneExpiredTable.Name()).Columns("day", "epoch", "log_offset").
				Where(qb.Eq("shard"), qb.Eq("lane"), qb.Eq("kind")).Limit(1))
)
