package server

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// ErrPortInUse says that another process listens on a port that was asked for.
var ErrPortInUse = errors.New("the port is in use by another process; stop it or choose another port (0: any free one)")

// portFree tells whether a listener can have the port.
func portFree(ip string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return ErrPortInUse
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return l.Close()
}

// freePort finds a free port. It makes and closes a connection, whose TIME_WAIT
// keeps the kernel from giving the same port to someone else before the service
// listens on it.
func freePort(ip string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("listener on %v", l.Addr())
	}
	out, err := net.DialTCP("tcp", nil, address)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer in.Close() // the listening side closes first: it keeps the TIME_WAIT
	return address.Port, nil
}
