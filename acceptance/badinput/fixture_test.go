package badinput_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/quarantine"
)

const (
	single = logv1.ConversationKind_CONVERSATION_KIND_SINGLE
	group  = logv1.ConversationKind_CONVERSATION_KIND_GROUP

	// patience bounds a wait for an event that has to come.
	patience = 60 * time.Second
)

// bounded is a context for the calls of one test.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// settings are the defaults, on free ports, with few partitions.
func settings(t *testing.T, dir string) *config.Config {
	t.Helper()
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen, c.OutboxPartitions = dir, "127.0.0.1:0", 4
	return &c
}

// system is a node in this process with clients of every kind.
type system struct {
	*node.Node
	t *testing.T
	*client.Client
}

func startNode(t *testing.T, c *config.Config) *system {
	t.Helper()
	o := node.Options{Config: c}
	if testing.Verbose() && os.Getenv("LANEWAY_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	n, err := node.Start(bounded(t), o)
	require.NoError(t, err)
	t.Cleanup(n.Stop)
	s := &system{Node: n, t: t}
	s.Client = s.dial()
	return s
}

func (s *system) dial(o ...client.Option) *client.Client { return dial(s.t, s.URL(), o...) }

func dial(t *testing.T, url string, o ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, o...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// protocols are all ways into the API.
var protocols = map[string]connect.ClientOption{
	"connect": connect.WithClientOptions(), "json": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
}

// entries waits until a mailbox holds n entries and returns them.
func entries(t *testing.T, c *client.Client, tenant, user string, n int) []*lanewayv1.Entry {
	t.Helper()
	var got []*lanewayv1.Entry
	full := errors.New("full")
	_, err := c.Follow(bounded(t), client.Mailbox{Tenant: tenant, User: user}, "", func(p *client.Page) error {
		got = append(got, p.Entries...)
		if len(got) >= n {
			return full
		}
		return nil
	})
	require.ErrorIs(t, err, full, "%q/%q has %d entries of %d", tenant, user, len(got), n)
	require.Len(t, got, n)
	return got
}

// messages are the message ids of entries.
func messages(es []*lanewayv1.Entry) []string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.MessageId
	}
	return out
}

// say commits a message of a SINGLE conversation.
func say(t *testing.T, c *client.Client, tenant, conversation, id, from string, to ...string) {
	t.Helper()
	_, err := c.Commit(bounded(t), &lanewayv1.CommitRequest{
		TenantId: tenant, ConversationId: conversation, ConversationKind: single, SenderId: from, ClientMessageId: id, MessageId: id, RecipientIds: to,
	})
	require.NoError(t, err)
}

// producer writes to the topics as a team with its own writer does.
func (s *system) producer() *kgo.Client {
	s.t.Helper()
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: s.Brokers(), ClientID: "outsider"}, kgo.ProducerBatchMaxBytes(2<<20))
	require.NoError(s.t, err)
	s.t.Cleanup(cl.Close)
	return cl
}

// produce appends one value and returns its offset.
func produce(t *testing.T, cl *kgo.Client, topic string, partition int32, value []byte) int64 {
	t.Helper()
	r := cl.ProduceSync(bounded(t), &kgo.Record{Topic: topic, Partition: partition, Value: value})
	require.NoError(t, r.FirstErr())
	return r[0].Record.Offset
}

// quarantined waits for n records on the quarantine topic.
func (s *system) quarantined(n int) []quarantine.Record {
	s.t.Helper()
	ctx := bounded(s.t)
	r, err := broker.NewReader(ctx, broker.ClientConfig{Brokers: s.Brokers(), ClientID: "operator"}, s.Topics().Quarantine, 0, 0)
	require.NoError(s.t, err)
	defer r.Close()
	var out []quarantine.Record
	for len(out) < n {
		rs, err := r.Poll(ctx)
		require.NoError(s.t, err, "%d of %d records are in quarantine", len(out), n)
		for _, k := range rs {
			q, err := quarantine.Decode(k.Value)
			require.NoError(s.t, err)
			out = append(out, q)
		}
	}
	require.Len(s.t, out, n)
	return out
}

// series reads the sum of a metric's series whose labels hold all of the texts.
func series(t *testing.T, url, name string, labels ...string) float64 {
	t.Helper()
	status, body := get(t, url+"/metrics")
	require.Equal(t, http.StatusOK, status)
	sum := 0.0
	lines := bufio.NewScanner(strings.NewReader(body))
next:
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err)
		sum += v
	}
	return sum
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (status int, body string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var b strings.Builder
	_, err = bufio.NewReader(res.Body).WriteTo(&b)
	require.NoError(t, err)
	return res.StatusCode, b.String()
}

func users(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("user-%04d", i)
	}
	return out
}
