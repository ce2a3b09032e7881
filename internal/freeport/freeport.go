// Package freeport finds ports for servers that must be told theirs.
package freeport

import (
	"fmt"
	"net"
	"strconv"
)

// Get finds a free loopback port. It makes and closes a connection, whose
// TIME_WAIT keeps the kernel from giving the same port to someone else before
// the server listens on it.
func Get() (int, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	out, err := net.DialTCP("tcp", nil, address(l))
	if err != nil {
		return 0, err
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer in.Close() // the listening side closes first: it keeps the TIME_WAIT
	return address(l).Port, nil
}

// address is a TCP listener's address.
func address(l *net.TCPListener) *net.TCPAddr {
	a, _ := l.Addr().(*net.TCPAddr)
	return a
}

// Check tells whether a listener can have the loopback port.
func Check(port int) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("port %d can't be had: %w", port, err)
	}
	return l.Close()
}
