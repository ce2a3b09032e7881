// Package server runs a whole Temporal service (frontend, history, matching and
// worker) with its Web UI in one process, for development, demonstrations and
// tests (design 7, "Local server").
//
// It owns the SQLite databases that it is told to use, and nothing else. It
// lays their schema, the namespaces and the search attributes before the
// service starts, so that they can be used at once: a namespace made over the
// API is unknown to the service's caches for some seconds.
//
// It is not for production: one process, no authentication, loopback only
// unless told otherwise.
package server
