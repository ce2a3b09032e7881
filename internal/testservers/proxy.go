package testservers

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy passes TCP on to a server, and fails as a network does when it is told.
// Faults add up until Heal.
type Proxy struct {
	// Addr is where clients connect to, as HOST:PORT.
	Addr string

	tb    testing.TB
	mu    sync.Mutex
	proxy *toxiproxy.Proxy
}

// StartProxy starts a proxy to a server's HOST:PORT. It ends with the test.
func StartProxy(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, tb.Name(), "127.0.0.1:0", upstream)
	must(tb, proxy.Start())
	tb.Cleanup(proxy.Stop)
	return &Proxy{Addr: proxy.Listen, tb: tb, proxy: proxy}
}

// Cut closes every connection and refuses new ones, as a dead server's machine
// does.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
}

// Heal ends all faults. Connections that they haven't ended work on.
func (p *Proxy) Heal() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Toxics.ResetToxics(context.Background())
	if !p.proxy.Enabled {
		must(p.tb, p.proxy.Start())
	}
}

// Latency delays every answer by so much.
func (p *Proxy) Latency(d time.Duration) {
	p.tb.Helper()
	p.add("latency", "downstream", map[string]any{"latency": d.Milliseconds()})
}

// DropReplies lets requests pass and swallows the answers: the server has done
// what it was asked for, and instead of its answer the connection's end comes.
// That goes for greetings too, so no new connection can be used.
func (p *Proxy) DropReplies() {
	p.tb.Helper()
	p.add("limit_data", "downstream", map[string]any{"bytes": 0})
}

// ResetPeer ends connections at their next request, which doesn't reach the
// server; those that are made from now on end by a TCP reset.
func (p *Proxy) ResetPeer() {
	p.tb.Helper()
	p.add("reset_peer", "upstream", map[string]any{"timeout": 0})
}

// add adds a fault, or changes it: by a new one, as updates race with the
// connections in this version of the library.
func (p *Proxy) add(kind, stream string, attributes map[string]any) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := json.Marshal(map[string]any{
		"name": kind, "type": kind, "stream": stream, "attributes": attributes,
	})
	must(p.tb, err)
	if p.proxy.Toxics.GetToxic(kind) != nil {
		must(p.tb, p.proxy.Toxics.RemoveToxic(context.Background(), kind))
	}
	_, err = p.proxy.Toxics.AddToxicJson(bytes.NewReader(data))
	must(p.tb, err)
}
