// Package soak holds the soak test: a real node process and a real Temporal
// under a random mix of traffic, killed, frozen and restarted at random moments,
// while clients retry and readers keep their cursors. At the end every mailbox is
// held against a model that knows nothing but the answers that clients got.
// Design: docs/design/11-testing.md.
package soak
