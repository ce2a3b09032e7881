// Package localtemporal gives a running Temporal to `laneway dev`, `laneway
// demo` and tests (design 7, "Local server").
//
// It uses the server that it is told of, or starts one on loopback: the binary
// of this version from the cache, else the `temporal` CLI's development server,
// else one that it builds from deploy/temporal into the cache first. It owns the
// process that it starts, its data directory and the cache, and nothing on a
// server that was there before: there it only adds what is missing.
//
// The cache is $LANEWAY_CACHE, or "laneway" in the user's cache directory. A
// binary in it is named after a hash of what it was built from, written under
// another name and renamed, so one that is there is whole and current. Processes
// that need the same binary at once agree by a file lock: one builds, the others
// wait and show its progress.
package localtemporal
