package broker

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Junk on the embedded log's port ended the node: kfake panics over an API key
// that it does not know.
func TestEmbeddedSurvivesJunk(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	frame := func(size uint32, key, version int16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, size)
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		return append(binary.BigEndian.AppendUint16(b, uint16(version)), rest...)
	}
	for name, junk := range map[string][]byte{
		"unknown API key":  frame(16, 9999, 0, make([]byte, 12)...),
		"negative API key": frame(16, -1, 0, make([]byte, 12)...),
		"negative version": frame(16, 3, -1, make([]byte, 12)...),
		"huge version":     frame(16, 0, 32767, make([]byte, 12)...),
		"4 GiB":            frame(1<<32-1, 0, 0),
		"empty frame":      frame(0, 0, 0),
		"HTTP":             []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":              append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}, make([]byte, 512)...),
	} {
		c, err := net.Dial("tcp", e.Addrs()[0])
		require.NoError(t, err, name)
		_, err = c.Write(junk)
		require.NoError(t, err, name)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s: the connection is not closed", name)
		require.NoError(t, c.Close())
	}
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.outbox", 0, "still here")
}

// Requests that are well framed but hold nonsense must not end it either.
func TestEmbeddedSurvivesNonsense(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	rng := rand.New(rand.NewPCG(1, 2))
	body := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			if rng.IntN(3) == 0 {
				b[i] = byte(rng.Uint32())
			}
		}
		return b
	}
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for version := range req.MaxVersion() + 1 {
			for _, n := range []int{4, 8, 40, 200} {
				c, err := net.Dial("tcp", e.Addrs()[0])
				require.NoError(t, err)
				b := binary.BigEndian.AppendUint32(nil, uint32(4+n))
				b = binary.BigEndian.AppendUint16(b, uint16(key))
				b = binary.BigEndian.AppendUint16(b, uint16(version))
				_, err = c.Write(append(b, body(n)...))
				require.NoError(t, err)
				require.NoError(t, c.Close())
			}
		}
	}
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.outbox", 0, "still here")
}
