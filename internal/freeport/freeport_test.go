package freeport

import (
	"fmt"
	"net"
	"testing"
)

func TestGet(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := Get()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatalf("the port can't be listened on: %v", err)
		}
		l.Close()
	}
}
