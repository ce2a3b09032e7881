package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFrameBytes bounds a request to the embedded log: a client sends no larger
// one (kgo's BrokerMaxWriteBytes).
const maxFrameBytes = 100 << 20

var errNotKafka = errors.New("not a Kafka request")

// guardListener listens as kfake asks for, and keeps from it what is no Kafka
// request: anything can connect to a port, and kfake makes room for whatever
// size a frame claims and panics over an API key that it does not know, which
// would end the whole node.
func guardListener(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("embedded log: %w", err)
	}
	return guardedListener{l}, nil
}

type guardedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l guardedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // kfake compares it
	}
	return &guardedConn{Conn: c}, nil
}

// guardedConn passes whole frames on: after a bad head, reading fails and kfake
// closes the connection.
type guardedConn struct {
	net.Conn
	head    [8]byte // size, API key, version
	unread  []byte  // of head
	left    int     // of the frame, behind head
	refused error
}

// Read implements net.Conn.
func (c *guardedConn) Read(p []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	if len(c.unread) == 0 && c.left == 0 {
		if _, err := io.ReadFull(c.Conn, c.head[:]); err != nil {
			return 0, err
		}
		if c.refused = checkFrame(c.head); c.refused != nil {
			return 0, c.refused
		}
		c.unread, c.left = c.head[:], int(binary.BigEndian.Uint32(c.head[:]))-4
	}
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func checkFrame(head [8]byte) error {
	if size := binary.BigEndian.Uint32(head[:]); size < 8 || size > maxFrameBytes {
		return fmt.Errorf("%w: a frame of %d bytes", errNotKafka, size)
	}
	key := int16(binary.BigEndian.Uint16(head[4:]))
	version := int16(binary.BigEndian.Uint16(head[6:]))
	req := kmsg.RequestForKey(key)
	if req == nil || version < 0 {
		return fmt.Errorf("%w: API key %d, version %d", errNotKafka, key, version)
	}
	// A client of a newer version asks for ApiVersions first, in a version of its
	// own, and is answered which ones there are.
	if version > req.MaxVersion() && key != int16(kmsg.ApiVersions) {
		return fmt.Errorf("%w: version %d of API key %d", errNotKafka, version, key)
	}
	return nil
}
