package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

func TestEnsureTopicsCreatesAndVerifies(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	ctx := testContext(t)

	problems := Check(ctx, cl, testTopics)
	require.Len(t, problems, 3)
	require.Contains(t, problems[0].String(), "laneway setup")

	c := testTopics
	c.Retention = 48 * time.Hour
	require.NoError(t, EnsureTopics(ctx, cl, c))
	require.NoError(t, EnsureTopics(ctx, cl, c))
	require.Empty(t, Check(ctx, cl, c))

	d, err := DescribeTopic(ctx, cl, "laneway.outbox")
	require.NoError(t, err)
	require.Equal(t, 4, d.Partitions)
	require.Equal(t, 48*time.Hour, d.Retention())
	require.Equal(t, "LogAppendTime", d.Configs["message.timestamp.type"])

	wrong := testTopics
	wrong.Shards = 3
	err = EnsureTopics(ctx, cl, wrong)
	require.ErrorIs(t, err, ErrTopicMismatch)
	require.ErrorContains(t, err, "it has 2 partitions, the configuration says 3")
	problems = Check(ctx, cl, wrong)
	require.Len(t, problems, 1)
	require.False(t, problems[0].Warning)
}

func TestCheckFindsWhatLosesRecords(t *testing.T) {
	want := topicWant{"t", 2, MaxMessageBytes}
	good := func() *TopicState {
		return &TopicState{Name: "t", Partitions: 2, Replication: 3, Configs: map[string]string{
			"cleanup.policy": "delete", "min.insync.replicas": "2", "unclean.leader.election.enable": "false",
			"retention.ms": "604800000", "message.timestamp.type": "LogAppendTime",
		}}
	}
	require.Nil(t, good().problem(want))
	require.Empty(t, good().warnings(want))
	for key, bad := range map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "1", "unclean.leader.election.enable": "true"} {
		s := good()
		s.Configs[key] = bad
		p := s.problem(want)
		require.NotNil(t, p, key)
		require.Contains(t, p.What, key)
		require.ErrorIs(t, p.err(), ErrTopicMismatch)
	}
	for key, bad := range map[string]string{"retention.ms": "1000", "message.timestamp.type": "CreateTime", "max.message.bytes": "1000"} {
		s := good()
		s.Configs[key] = bad
		require.Len(t, s.warnings(want), 1, key)
	}
}

func TestCheckOfABrokerThatIsDown(t *testing.T) {
	cl := testClient(t, []string{"127.0.0.1:1"})
	problems := Check(testContext(t), cl, testTopics)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), "127.0.0.1:1")
}

func TestCompactedTopicIsRefused(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	_, err := kadm.NewClient(cl).CreateTopic(testContext(t), 4, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}, "laneway.outbox")
	require.NoError(t, err)
	require.ErrorIs(t, EnsureTopics(testContext(t), cl, testTopics), ErrTopicMismatch)
}
