package testservers

import (
	"fmt"
	"net"
	"strconv"

	"github.com/laneway/laneway/internal/freeport"
)

// cassandraPlace is where a node listens and which node it joins.
type cassandraPlace struct {
	host, seed        string
	port, storagePort int
}

// findPlaces finds places for a cluster of up to 3: one address for each, the
// same free ports on all.
func findPlaces(n int) ([]cassandraPlace, error) {
	port, err := freePort(n)
	if err != nil {
		return nil, err
	}
	storagePort, err := freePort(n)
	if err != nil {
		return nil, err
	}
	places := make([]cassandraPlace, n)
	for i := range places {
		places[i] = cassandraPlace{host: loopback(i), seed: loopback(0), port: port, storagePort: storagePort}
	}
	return places, nil
}

// freePort finds a port that is free on the first n loopback addresses.
func freePort(n int) (int, error) {
	for range 100 {
		port, err := freeport.Get()
		if err != nil {
			return 0, err
		}
		free := true
		for i := 1; i < n && free; i++ {
			l, err := net.Listen("tcp", net.JoinHostPort(loopback(i), strconv.Itoa(port)))
			if free = err == nil; free {
				_ = l.Close()
			}
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port is free on all of %s to %s", loopback(0), loopback(n-1))
}

func loopback(i int) string { return "127.0.0." + strconv.Itoa(i+1) }
