package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
)

// Client calls a Laneway deployment. It is safe for concurrent use.
type Client struct {
	http     *http.Client
	options  []connect.ClientOption
	compress bool
	retries  int
	pause    pauses
	base     *node

	mu    sync.Mutex
	nodes map[string]*node // by base URL; other nodes of the deployment
}

// maxNodes bounds the remembered nodes; beyond it they are forgotten, which
// costs a new connection and nothing else.
const maxNodes = 256

// node is one server's set of services.
type node struct {
	url        string
	mailbox    lanewayv1connect.MailboxServiceClient
	commit     lanewayv1connect.CommitServiceClient
	membership lanewayv1connect.MembershipServiceClient
	presence   lanewayv1connect.PresenceServiceClient
	admin      lanewayv1connect.AdminServiceClient
}

// Option changes a Client.
type Option func(*Client)

// WithHTTPClient replaces the HTTP client, for TLS, proxies or tests. The
// default speaks HTTP/2 (without TLS to http:// addresses).
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithRetries sets how often a call that may succeed later is repeated; 8 by
// default. 0: never.
func WithRetries(n int) Option { return func(c *Client) { c.retries = n } }

// WithBackoff sets the first and the longest pause between repetitions where
// the server gives no advice; 100 ms and 5 s by default.
func WithBackoff(first, longest time.Duration) Option {
	return func(c *Client) { c.pause = pauses{first, longest} }
}

// WithCompression asks for compressed answers: worth it over a network, a waste
// on loopback.
func WithCompression() Option {
	return func(c *Client) { c.compress = true }
}

// WithConnectOptions adds options of the transport, such as interceptors or
// connect.WithGRPC.
func WithConnectOptions(o ...connect.ClientOption) Option {
	return func(c *Client) { c.options = append(c.options, o...) }
}

// New returns a client of the deployment that the node at baseURL belongs to,
// for example http://127.0.0.1:7480. Nothing is contacted yet.
func New(baseURL string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server %q: want a URL such as http://127.0.0.1:7480", baseURL)
	}
	c := &Client{
		retries: 8,
		pause:   pauses{100 * time.Millisecond, 5 * time.Second},
		nodes:   make(map[string]*node),
	}
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: transport()}
	}
	if !c.compress {
		c.options = append(c.options, connect.WithAcceptCompression("gzip", nil, nil))
	}
	c.base = c.connect(strings.TrimRight(baseURL, "/"))
	return c, nil
}

// transport multiplexes all calls and streams over one HTTP/2 connection for
// each server, and notices a dead one although a Watch may be silent for hours.
func transport() *http.Transport {
	var p http.Protocols
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		Protocols:       &p,
		IdleConnTimeout: 90 * time.Second,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}

func (c *Client) connect(base string) *node {
	return &node{
		url:        base,
		mailbox:    lanewayv1connect.NewMailboxServiceClient(c.http, base, c.options...),
		commit:     lanewayv1connect.NewCommitServiceClient(c.http, base, c.options...),
		membership: lanewayv1connect.NewMembershipServiceClient(c.http, base, c.options...),
		presence:   lanewayv1connect.NewPresenceServiceClient(c.http, base, c.options...),
		admin:      lanewayv1connect.NewAdminServiceClient(c.http, base, c.options...),
	}
}

// at returns the node at an address that a SHARD_MOVED named: a URL, or a
// host:port to be reached like the first node.
func (c *Client) at(address string) *node {
	if !strings.Contains(address, "://") {
		scheme, _, _ := strings.Cut(c.base.url, "://")
		address = scheme + "://" + address
	}
	address = strings.TrimRight(address, "/")
	if address == c.base.url {
		return c.base
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.nodes[address]; ok {
		return n
	}
	if len(c.nodes) >= maxNodes {
		clear(c.nodes)
	}
	n := c.connect(address)
	c.nodes[address] = n
	return n
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
