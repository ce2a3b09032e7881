package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
)

// TestDemoSendsNobodyToAStoreThatEnded: under tools/storeserver it ends with the
// demonstration.
func TestDemoSendsNobodyToAStoreThatEnded(t *testing.T) {
	c := &config.Config{DataDir: "d", Store: config.Store{URL: "redis://127.0.0.1:6379/0"}}
	require.Contains(t, (&app{}).lookAround(c), "laneway dev --data-dir d --store redis://127.0.0.1:6379/0")
	a := &app{environ: []string{passingStore + "=Redis"}}
	require.NotContains(t, a.lookAround(c), "6379")
	require.NotContains(t, a.lookAround(c), "laneway dev")
	c.Store.URL = "pebble:"
	require.Contains(t, a.lookAround(c), "laneway dev --data-dir d;", "that store is still there")
}
