package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/mailbox"
)

// Problem is one thing that is wrong with the settings.
type Problem struct {
	Key     string
	Source  string // default, file, environment or flag
	Message string
	Fix     string
}

// String returns the problem in one line.
func (p Problem) String() string {
	s := fmt.Sprintf("%s (%s): %s", p.Key, p.Source, p.Message)
	if p.Fix != "" {
		s += "; " + p.Fix
	}
	return s
}

// Error lists everything that is wrong with the settings.
type Error struct{ Problems []Problem }

// Error implements error.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "the configuration is not valid:\n  " + strings.Join(lines, "\n  ")
}

// Limits of settings.
const (
	maxShards           = 1024
	maxOutboxPartitions = 4096
)

// TailRetention is how much of the log a store needs that may come back without
// its last writes: its server may be down for that long before it does. The log
// is what they are made good from.
const TailRetention = 24 * time.Hour

// check returns what is outside its limits.
func (c *Config) check() []Problem {
	var problems []Problem
	bad := func(key, fix, format string, args ...any) {
		problems = append(problems, Problem{Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
	}
	between := func(key string, v, low, high int) {
		if v < low || v > high {
			bad(key, fmt.Sprintf("use %d to %d", low, high), "%d is out of range", v)
		}
	}
	atLeast := func(key string, v, low time.Duration) {
		if v < low {
			bad(key, "use "+low.String()+" or more", "%s is too short", v)
		}
	}
	if c.DataDir == "" {
		bad("data_dir", "name a directory", "it is empty")
	}
	if err := mailbox.CheckID("node", c.Node); err != nil {
		bad("node", "use 1 to 128 bytes without control characters", "%v", err)
	}
	// Authentication does not exist yet, so neither TLS nor it is configurable.
	if err := api.CheckListen(c.Listen, false, false); err != nil {
		bad("listen", "for example 127.0.0.1:7480", "%v", err)
	} else if _, port, _ := net.SplitHostPort(c.Listen); !isPort(port) {
		bad("listen", "use a port from 1 to 65535, or 0 for any free one", "%q has no port", c.Listen)
	}
	between("shards", c.Shards, 1, maxShards)
	between("outbox_partitions", c.OutboxPartitions, 1, maxOutboxPartitions)
	between("retention_days", c.RetentionDays, mailbox.MinRetentionDays, mailbox.MaxRetentionDays)
	atLeast("lease", c.Lease, time.Second)
	atLeast("shutdown_timeout", c.ShutdownTimeout, time.Second)
	between("workflow_min_entries", c.WorkflowMinEntries, 1, 1<<30)
	between("lane_child_min_entries", c.LaneChildMinEntries, 1, 1<<30)
	atLeast("claim_timeout", c.ClaimTimeout, 100*time.Millisecond)
	atLeast("turn", c.Turn, time.Second)
	if c.ClaimTimeout >= c.Turn {
		bad("claim_timeout", "make it shorter than turn", "%s is not below turn (%s): a chunk's turn would end before anybody else may append it", c.ClaimTimeout, c.Turn)
	}
	atLeast("lane_stall_alert", c.LaneStallAlert, time.Second)
	between("max_unfinished_dispatches", c.MaxUnfinishedDispatches, 1, 10_000)
	c.checkStore(bad)
	c.checkBlobs(bad)
	for _, b := range c.Log.Brokers {
		if !hostPort(b) {
			bad("log.brokers", "use host:port, separated by commas", "%q is not an address", mask(b))
		}
	}
	if c.Log.TopicPrefix == "" || strings.Trim(c.Log.TopicPrefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || len(c.Log.TopicPrefix) > 200 {
		bad("log.topic_prefix", "use letters, digits, dot, dash and underscore", "%q cannot begin a topic's name", c.Log.TopicPrefix)
	}
	between("log.replication", c.Log.Replication, 1, 16)
	atLeast("log.retention", c.Log.Retention, time.Hour)
	if c.Store.Kind() == Redis && c.Log.Retention >= time.Hour && c.Log.Retention < TailRetention {
		bad("log.retention", "use "+TailRetention.String()+" or more", "%s is too short for a store that may lose its last writes", c.Log.Retention)
	}
	if c.Temporal.Address != "" && !hostPort(c.Temporal.Address) {
		bad("temporal.address", "use host:port, for example 127.0.0.1:7233, or leave it empty", "%q is not an address", c.Temporal.Address)
	}
	if err := mailbox.CheckID("temporal.namespace", c.Temporal.Namespace); err != nil {
		bad("temporal.namespace", "for example laneway", "%v", err)
	}
	between("temporal.ui_port", c.Temporal.UIPort, 0, 65535)
	between("api.streams_per_user", c.API.StreamsPerUser, 1, 10_000)
	between("api.streams", c.API.Streams, 1, 10_000_000)
	between("api.max_import_users", c.API.MaxImportUsers, 1, 1_000_000)
	atLeast("presence.ttl", c.Presence.TTL, time.Second)
	if c.Presence.TTL > 24*time.Hour {
		bad("presence.ttl", "use 24h or less", "%s is too long: a device whose end was not told would count as online for all of it", c.Presence.TTL)
	}
	between("presence.max_devices", c.Presence.MaxDevices, 1, 100_000_000)
	c.checkQuota(bad, between)
	c.checkFanout(bad)
	c.checkRetention(bad)
	switch c.Logging.Level {
	case "debug", "info", "warn", "error":
	default:
		bad("logging.level", "use debug, info, warn or error", "%q is unknown", c.Logging.Level)
	}
	switch c.Logging.Format {
	case "text", "json":
	default:
		bad("logging.format", "use text or json", "%q is unknown", c.Logging.Format)
	}
	return problems
}

func hostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && host != "" && isPort(port) && port != "0"
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
