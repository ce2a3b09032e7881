package testservers

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/internal/freeport"
)

// redisSlots is how many hash slots a cluster has.
const redisSlots = 16384

// RedisCluster is a Redis Cluster of three masters, which Laneway refuses.
type RedisCluster struct {
	// Addrs are the nodes' HOST:PORT.
	Addrs []string
	// Nodes can be killed and restarted one by one.
	Nodes []*Redis
}

// StartRedisCluster starts three masters without persistence and returns once
// all slots are served. It ends with the test.
func StartRedisCluster(tb testing.TB) *RedisCluster {
	tb.Helper()
	cluster, off := &RedisCluster{}, false
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	const masters = 3
	var first string
	for i := range masters {
		bus, err := freeport.Get()
		must(tb, err)
		node := StartRedis(tb, RedisConfig{AppendOnly: &off, Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		}})
		cluster.Nodes, cluster.Addrs = append(cluster.Nodes, node), append(cluster.Addrs, node.Addr)
		c := goredis.NewClient(&goredis.Options{Addr: node.Addr})
		defer c.Close()
		// Each has a share of the slots and an epoch of its own, and meets the first.
		must(tb, c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		must(tb, c.ClusterAddSlotsRange(ctx, i*redisSlots/masters, (i+1)*redisSlots/masters-1).Err())
		host, port, err := net.SplitHostPort(node.Addr)
		must(tb, err)
		if i == 0 {
			first = fmt.Sprintf("%s %s %d", host, port, bus)
			continue
		}
		meet := []any{"CLUSTER", "MEET"}
		for _, word := range strings.Fields(first) {
			meet = append(meet, word)
		}
		must(tb, c.Do(ctx, meet...).Err())
	}
	for _, addr := range cluster.Addrs {
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		defer c.Close()
		waitForCluster(ctx, tb, c, masters)
	}
	return cluster
}

// waitForCluster waits until a node serves all slots together with the others,
// for which there is no event.
func waitForCluster(ctx context.Context, tb testing.TB, c *goredis.Client, nodes int) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := c.ClusterInfo(ctx).Result()
		must(tb, err)
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", nodes)) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("the Redis Cluster isn't ready: %v\n%s", ctx.Err(), info)
		}
	}
}
