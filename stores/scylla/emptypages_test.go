package scylla

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// emptyPages stands between the driver and a server and puts an empty page that
// is not the last before every page of rows of a prepared statement, as a server
// may after a while of reading what is gone. Frames are those of version 4 of the
// protocol, without compression.
type emptyPages struct {
	t        *testing.T
	addr     string
	upstream string
	pages    atomic.Int64 // put in

	mu    sync.Mutex
	later map[string][]byte // the page behind an empty one, by its paging state
}

func startEmptyPages(t *testing.T, upstream string) *emptyPages {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &emptyPages{t: t, addr: l.Addr().String(), upstream: upstream, later: map[string][]byte{}}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = client.Close()
				continue
			}
			var toClient sync.Mutex
			wg.Go(func() { p.requests(client, server, &toClient) })
			wg.Go(func() { p.answers(client, server, &toClient) })
		}
	})
	return p
}

const (
	frameHeader  = 9
	opResult     = 0x08
	kindRows     = 2
	flagMore     = 0x02
	flagNoTypes  = 0x04
	stateLength  = 16
	headerStream = 2
)

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, frameHeader)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head[5:]))...) //nolint:makezero // read into below
	_, err := io.ReadFull(r, frame[frameHeader:])
	return frame, err
}

// requests passes frames on, and answers those that ask for the page behind an
// empty one.
func (p *emptyPages) requests(client, server net.Conn, toClient *sync.Mutex) {
	defer server.Close()
	for {
		frame, err := readFrame(client)
		if err != nil {
			return
		}
		if page := p.take(frame); page != nil {
			copy(page[headerStream:], frame[headerStream:headerStream+2])
			toClient.Lock()
			_, err = client.Write(page)
			toClient.Unlock()
		} else {
			_, err = server.Write(frame)
		}
		if err != nil {
			return
		}
	}
}

func (p *emptyPages) take(frame []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for state, page := range p.later {
		if bytes.Contains(frame, []byte(state)) {
			delete(p.later, state)
			return page
		}
	}
	return nil
}

// answers passes frames on and puts empty pages before those of rows.
func (p *emptyPages) answers(client, server net.Conn, toClient *sync.Mutex) {
	defer client.Close()
	for {
		frame, err := readFrame(server)
		if err != nil {
			return
		}
		if empty := p.emptyBefore(frame); empty != nil {
			frame = empty
		}
		toClient.Lock()
		_, err = client.Write(frame)
		toClient.Unlock()
		if err != nil {
			return
		}
	}
}

// emptyBefore keeps a page of rows for later and returns an empty one to be sent
// first; nil for other frames.
func (p *emptyPages) emptyBefore(frame []byte) []byte {
	body := frame[frameHeader:]
	if frame[4] != opResult || len(body) < 12 || binary.BigEndian.Uint32(body) != kindRows {
		return nil
	}
	flags := binary.BigEndian.Uint32(body[4:])
	if flags&flagNoTypes == 0 {
		return nil // the driver's own queries
	}
	state := make([]byte, stateLength)
	_, _ = rand.Read(state)
	out := append([]byte(nil), frame[:frameHeader]...)
	out = binary.BigEndian.AppendUint32(out, kindRows)
	out = binary.BigEndian.AppendUint32(out, flags|flagMore)
	out = append(out, body[8:12]...) // number of columns
	out = binary.BigEndian.AppendUint32(out, stateLength)
	out = append(out, state...)
	out = binary.BigEndian.AppendUint32(out, 0) // rows
	binary.BigEndian.PutUint32(out[5:], uint32(len(out)-frameHeader))
	p.mu.Lock()
	p.later[string(state)] = frame
	p.mu.Unlock()
	p.pages.Add(1)
	return out
}

// TestEmptyPageIsNotTheEnd reads through pages that are empty and not the last.
func TestEmptyPageIsNotTheEnd(t *testing.T) {
	c := testservers.SharedCassandra(t)
	direct := newBoxes(t, c)
	p := startEmptyPages(t, c.Addr)
	o := direct.o
	o.URL = "cql://" + p.addr + "/" + direct.keyspace
	b := &boxes{Store: openStore(t, o), t: t, o: o, clock: direct.clock}
	const groups = 300
	var want []int64
	for o := range int64(groups) {
		b.put(o+1, storetest.Start, "u")
		want = append(want, o+1)
	}
	before := p.pages.Load()
	require.Equal(t, want, b.all("u"))
	require.Greater(t, p.pages.Load(), before+5)

	require.NoError(t, b.TruncateBefore(t.Context(), boxUser("u"), boxSeq(5)))
	b.put(groups+1, storetest.Start.Add(24*time.Hour), "u")
	b.expireToday()
	bound, err := b.UserBounds(t.Context(), boxUser("u"))
	require.NoError(t, err)
	require.Equal(t, mailbox.Bounds{Trim: boxSeq(5), Gap: boxSeq(groups)}, bound, "boundaries and proofs are read through them too")
	require.NoError(t, b.expireDays(t.Context(), 0))
	require.Equal(t, boxSeq(groups), direct.gap("u"))
	require.Equal(t, []int64{groups + 1}, b.offsets("u", groups))

	// What is one row or one partition.
	own := fenceBy(t, b.Store, 1, time.Hour)
	progress := testProgress(7, oneLane)
	require.NoError(t, b.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{progress}, Frontier: progress.Seq}))
	require.NoError(t, b.CompareAndSetHead(t.Context(), testConversation, 0, []byte("head"), true))
	require.NoError(t, b.PutCommitted(t.Context(), testConversation, "sender", "id", []byte("row")))
	other := openStore(t, o) // knows nothing of it yet
	st, err := other.LoadShard(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, own.Token, st.Token)
	require.Equal(t, progress.Seq, st.F)
	found, err := other.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{progress.Dispatch})
	require.NoError(t, err)
	require.NotNil(t, found[0])
	require.Equal(t, []mailbox.Seq{progress.Seq}, scanSeqs(t, other, 0))
	head, revision, err := other.Head(t.Context(), testConversation)
	require.NoError(t, err)
	require.EqualValues(t, 1, revision)
	require.Equal(t, []byte("head"), head)
	row, err := other.Committed(t.Context(), testConversation, "sender", "id")
	require.NoError(t, err)
	require.Equal(t, []byte("row"), row)
}
