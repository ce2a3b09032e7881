package config

import "time"

// Config is the effective settings. Field order is that of the documentation.
type Config struct {
	DataDir          string        `koanf:"data_dir"`
	Node             string        `koanf:"node"`
	Listen           string        `koanf:"listen"`
	Shards           int           `koanf:"shards"`
	OutboxPartitions int           `koanf:"outbox_partitions"`
	RetentionDays    int           `koanf:"retention_days"`
	Lease            time.Duration `koanf:"lease"`
	ShutdownTimeout  time.Duration `koanf:"shutdown_timeout"`

	WorkflowMinEntries      int           `koanf:"workflow_min_entries"`
	LaneChildMinEntries     int           `koanf:"lane_child_min_entries"`
	ClaimTimeout            time.Duration `koanf:"claim_timeout"`
	Turn                    time.Duration `koanf:"turn"`
	LaneStallAlert          time.Duration `koanf:"lane_stall_alert"`
	MaxUnfinishedDispatches int           `koanf:"max_unfinished_dispatches"`

	Store     Store     `koanf:"store"`
	Blobs     Blobs     `koanf:"blobs"`
	Log       Log       `koanf:"log"`
	Temporal  Temporal  `koanf:"temporal"`
	API       API       `koanf:"api"`
	Presence  Presence  `koanf:"presence"`
	Quota     Quota     `koanf:"quota"`
	Fanout    Fanout    `koanf:"fanout"`
	Retention Retention `koanf:"retention"`
	Metrics   Metrics   `koanf:"metrics"`
	Logging   Logging   `koanf:"logging"`
}

// Store says where mailboxes, heads and membership are kept.
type Store struct {
	// URL is pebble: for a store below data_dir or pebble:PATH, redis:// or
	// rediss:// for Redis, cql:// for ScyllaDB and Cassandra. It may hold a
	// password: show it with Shown.
	URL string `koanf:"url"`
	// ShadowURL is a second store that takes mailbox writes too, and is compared
	// with the first (design 3.4); empty for none. ShadowSample is the share of
	// scans that are compared, in percent.
	ShadowURL    string `koanf:"shadow_url"`
	ShadowSample int    `koanf:"shadow_sample"`
	// AllowUnsafe is LANEWAY_REDIS_ALLOW_UNSAFE_DEV=1, which is no setting, so that
	// no file carries it into production: the checks of Redis' persistence and
	// eviction are skipped.
	AllowUnsafe bool `koanf:"-"`
}

// Log is the outbox and dispatch topics.
type Log struct {
	// Brokers is empty for the embedded log.
	Brokers     []string      `koanf:"brokers"`
	TopicPrefix string        `koanf:"topic_prefix"`
	Replication int           `koanf:"replication"`
	Retention   time.Duration `koanf:"retention"`
}

// Temporal is the workflow engine.
type Temporal struct {
	// Address is empty for a local server that laneway starts itself.
	Address   string `koanf:"address"`
	Namespace string `koanf:"namespace"`
	// UIPort is the local server's Web UI port; 0: any free one.
	UIPort int `koanf:"ui_port"`
}

// API limits what one caller can ask for.
type API struct {
	StreamsPerUser int `koanf:"streams_per_user"`
	Streams        int `koanf:"streams"`
	MaxImportUsers int `koanf:"max_import_users"`
}

// Presence says who is online (design 4).
type Presence struct {
	// Enabled reads the presence topic. Without it only open Watch streams are
	// told of news.
	Enabled    bool          `koanf:"enabled"`
	TTL        time.Duration `koanf:"ttl"`
	MaxDevices int           `koanf:"max_devices"`
}

// Metrics of this process.
type Metrics struct {
	// Lanes exports 64 series a shard for each lane family.
	Lanes bool `koanf:"lanes"`
}

// Logging of this process.
type Logging struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

// field is one setting: its default has the type that values must have.
type field struct {
	key  string
	def  any // string, int, bool, time.Duration or []string
	help string
}

// fields is the list of all settings, in the order of Config.
var fields = []field{
	{"data_dir", "laneway-data", "directory of everything that is kept on this machine"},
	{"node", "", "this node's name, unique in the deployment (empty: the host's name)"},
	{"listen", "127.0.0.1:7480", "address of the API, metrics and health"},
	{"shards", 2, "partitions of the user space; can never change once there is data"},
	{"outbox_partitions", 64, "partitions of the outbox topic; can never change once there is data"},
	{"retention_days", 14, "days a mailbox entry is kept after its message's day, 1 to 29"},
	{"lease", 10 * time.Second, "how long a shard stays owned without renewal"},
	{"shutdown_timeout", 20 * time.Second, "how long a clean stop may take before it is cut short"},

	{"workflow_min_entries", 1000, "entries in one shard from which a dispatch becomes a workflow"},
	{"lane_child_min_entries", 256, "entries in one lane from which it gets its own child workflow"},
	{"claim_timeout", 5 * time.Second, "how long a lane waits for a workflow to claim its turn"},
	{"turn", 30 * time.Second, "how long a chunk may hold its lane before it goes to the slow-retry queue"},
	{"lane_stall_alert", 30 * time.Second, "age of a lane's oldest obligation at which it counts as stalled"},
	{"max_unfinished_dispatches", 32, "unfinished large dispatches of a shard at which back-pressure begins"},

	{"store.url", "pebble:", "where the store is: pebble: (below data_dir), pebble:PATH, redis://, rediss:// or cql://"},
	{"store.shadow_url", "", "a second store that takes mailbox writes too and is compared with the first (empty: none)"},
	{"store.shadow_sample", 10, "share of scans that are compared with the shadow, in percent"},
	{"blobs.url", "", "bucket of what is too large for the store: file:///PATH or s3://BUCKET (empty: a folder below data_dir)"},
	{"log.brokers", []string{}, "Kafka brokers, host:port separated by commas (empty: the embedded log)"},
	{"log.topic_prefix", "laneway", "first part of the topics' names"},
	{"log.replication", 1, "replicas of the topics, where they are made"},
	{"log.retention", 7 * 24 * time.Hour, "how long the topics keep records, where they are made"},
	{"temporal.address", "", "Temporal frontend, host:port (empty: a local server is started)"},
	{"temporal.namespace", "laneway", "Temporal namespace"},
	{"temporal.ui_port", 8233, "port of the local server's Web UI (0: any free one)"},
	{"api.streams_per_user", 16, "open Watch streams of one user"},
	{"api.streams", 10000, "open Watch streams of this node"},
	{"api.max_import_users", 1000000, "users of one import"},
	{"presence.enabled", true, "read and write the presence topic, for gateways that want to be told of news (false: there is none)"},
	{"presence.ttl", 5 * time.Minute, "how long a device counts as online without saying so again"},
	{"presence.max_devices", 1000000, "devices that a node keeps, online or lately offline; about 150 bytes each"},
	{"quota.mode", "off", "what happens to messages over a tenant's quota: off (there is none), reject or queue"},
	{"quota.rate", 10000, "entries a second of each tenant: a message counts once for each recipient"},
	{"quota.burst", 100000, "entries of a tenant at once, after silence; a group above it needs all of them and leaves a debt"},
	{"quota.max_delay", 2 * time.Second, "how long a message may wait in mode queue"},
	{"quota.max_waiting", 1000, "messages of this node that wait at a time in mode queue"},
	{"quota.redis_url", "", "Redis that counts for all nodes, redis:// or rediss:// (empty: each node counts by itself)"},
	{"fanout.partitions", "all", "outbox partitions that this instance works: all, none, or a list like 0-31,40"},
	{"fanout.standby", false, "take outbox partitions that no instance works"},
	{"retention.versions", time.Duration(0), "how long a membership version is kept after it was superseded (0: for ever)"},
	{"retention.replay_window", time.Duration(0), "how long dispatch progress is kept after its dispatch was last seen (0: for ever)"},
	{"retention.apply", false, "remove what retention frees; else it is only counted what would be removed"},
	{"retention.every", 24 * time.Hour, "time between two runs of the retention workflow"},
	{"metrics.lanes", false, "export lane metrics: 64 series a shard each"},
	{"logging.level", "info", "debug, info, warn or error"},
	{"logging.format", "text", "text or json"},
}

func find(key string) (field, bool) {
	for _, f := range fields {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}
