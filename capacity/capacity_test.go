package capacity_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/capacity"
)

var room = capacity.Options{Use: 0.5, ShardsPerNode: 4, WorkflowMinEntries: 1_000, LaneChildMinEntries: 256}

func budget(t require.TestingT, store string) capacity.Budget {
	b, err := capacity.Default(store)
	require.NoError(t, err)
	return b
}

// TestPlatformTarget is the formula by hand: 34,722 messages a second to two
// people each are 69,444 entries.
func TestPlatformTarget(t *testing.T) {
	l := capacity.Load{SingleChats: 34_722}
	require.NoError(t, l.Check())
	d := l.Demand()
	require.Equal(t, capacity.Demand{Messages: 34_722, Entries: 69_444}, d)
	p, err := capacity.Compute(d, nil, budget(t, "pebble"), room)
	require.NoError(t, err)
	require.Equal(t, 1, p.Nodes)
	require.Equal(t, 2, p.Spare)
	require.Equal(t, 4, p.Shards)
	p, err = capacity.Compute(d, nil, budget(t, "redis"), room)
	require.NoError(t, err)
	require.Equal(t, 8, p.Nodes, "69,444 ÷ 9,000")
	require.Equal(t, 32, p.Shards)
	require.Contains(t, strings.Join(p.Notes, "\n"), "one Redis")
}

func TestGroupsAddUp(t *testing.T) {
	l := capacity.Load{
		Groups: []capacity.Group{
			{Name: "rooms", Count: 200, Members: 500, Rate: 0.5},
			{Name: "company", Members: 256_000, Rate: 2},
		},
		SingleChats: 10, SingleRecipients: 3,
	}
	d := l.Demand()
	require.Equal(t, capacity.Demand{Messages: 100 + 2 + 10, Entries: 50_000 + 512_000 + 30}, d)
	p, err := capacity.Compute(d, l.Groups, budget(t, "pebble"), capacity.Options{Use: 1, ShardsPerNode: 2, WorkflowMinEntries: 1_000, LaneChildMinEntries: 256})
	require.NoError(t, err)
	require.Equal(t, 5, p.Nodes)
	require.Equal(t, 16, p.Shards)
	require.InDelta(t, 2*16, p.WorkflowsPerSecond, 0, "16,000 in each shard; the rooms are hot")
	require.Zero(t, p.LaneWorkflowsPerSecond, "250 in each lane")
	l.Groups[1].Members = 300_000
	p, err = capacity.Compute(d, l.Groups, budget(t, "pebble"), capacity.Options{Use: 1, ShardsPerNode: 2, WorkflowMinEntries: 1_000, LaneChildMinEntries: 256})
	require.NoError(t, err)
	require.InDelta(t, 2*16*64, p.LaneWorkflowsPerSecond, 0)
}

// TestPlanCarriesItsLoad, with no node too many, and more load never needs less.
func TestPlanCarriesItsLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := budget(t, rapid.SampledFrom(capacity.Stores()).Draw(t, "store"))
		o := room
		o.Use = rapid.Float64Range(0.05, 1).Draw(t, "use")
		o.ShardsPerNode = rapid.IntRange(1, 16).Draw(t, "shards per node")
		d := capacity.Demand{Entries: rapid.Float64Range(0, 1e7).Draw(t, "entries")}
		p, err := capacity.Compute(d, nil, b, o)
		require.NoError(t, err)
		usable := b.Entries * o.Use
		require.GreaterOrEqual(t, float64(p.Nodes)*usable*(1+1e-9), d.Entries)
		if p.Nodes > 1 {
			require.Less(t, float64(p.Nodes-1)*usable, d.Entries)
			require.NotEmpty(t, p.Notes, "each store says what more nodes mean")
		}
		require.Equal(t, p.Nodes+1, p.Spare)
		require.LessOrEqual(t, p.Shards, 1024)
		require.True(t, p.Shards >= p.Nodes*o.ShardsPerNode || p.Shards == 1024)
		more, err := capacity.Compute(d.Times(rapid.Float64Range(1, 10).Draw(t, "times")), nil, b, o)
		require.NoError(t, err)
		require.GreaterOrEqual(t, more.Nodes, p.Nodes)
		require.GreaterOrEqual(t, more.Shards, p.Shards)
	})
}

func TestWhatCannotBePlannedIsNamed(t *testing.T) {
	nan := math.NaN()
	for says, l := range map[string]capacity.Load{
		"there is no load":             {},
		"group 1 (a): members is 0":    {Groups: []capacity.Group{{Name: "a"}}},
		"members is 1000001":           {Groups: []capacity.Group{{Members: 1_000_001}}},
		"count is -1":                  {Groups: []capacity.Group{{Members: 1, Count: -1}}},
		"messages_per_second is -1":    {Groups: []capacity.Group{{Members: 1, Rate: -1}}},
		"single_chats_per_second is N": {SingleChats: nan},
		"single_recipients is 17":      {SingleChats: 1, SingleRecipients: 17},
		"single_recipients is NaN":     {SingleChats: 1, SingleRecipients: nan},
	} {
		require.ErrorContains(t, l.Check(), says)
	}
	d := capacity.Demand{Entries: 1}
	_, err := capacity.Compute(d, nil, capacity.Budget{Store: "mysql", Entries: 1}, room)
	require.ErrorContains(t, err, "use pebble, redis, scylla")
	_, err = capacity.Compute(d, nil, capacity.Budget{Store: "redis"}, room)
	require.ErrorContains(t, err, "more than 0")
	_, err = capacity.Compute(d, nil, budget(t, "redis"), capacity.Options{Use: nan, ShardsPerNode: 1})
	require.ErrorContains(t, err, "at most 1")
	_, err = capacity.Compute(d, nil, budget(t, "redis"), capacity.Options{Use: 1})
	require.ErrorContains(t, err, "shards for each node")
	_, err = capacity.Compute(capacity.Demand{Entries: 1e20}, nil, budget(t, "redis"), room)
	require.ErrorContains(t, err, "beyond any plan")
}

func TestObservedIsTheDifferenceOverTime(t *testing.T) {
	a := capacity.Sample{Commits: 100, Hot: 1_000, Workflow: 50, CPUSeconds: 3, Shards: 2}
	b := capacity.Sample{Commits: 120, Hot: 1_400, Workflow: 250, CPUSeconds: 5, Shards: 4}
	o, err := capacity.Between(a, b, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, capacity.Observed{
		Demand: capacity.Demand{Messages: 2, Entries: 60}, OfWorkflows: 20, PerMessage: 30, CPUs: 0.2, Shards: 4,
	}, o)
	_, err = capacity.Between(b, a, 10*time.Second)
	require.ErrorIs(t, err, capacity.ErrRestarted)
	_, err = capacity.Between(a, b, 0)
	require.Error(t, err)
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 999: "999", 1_000: "1,000", 1_234_567.891: "1,234,567.891", 0.0004: "0", 0.5: "0.5", -12_345: "-12,345", 1e15: "1,000,000,000,000,000",
	} {
		require.Equal(t, want, capacity.Number(v))
	}
}
