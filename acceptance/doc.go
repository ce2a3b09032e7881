// Package acceptance holds the tests that say whether Laneway does what it is
// for: docs/design/12-acceptance.md, each test by its name there, on a real
// node, a real Temporal and, where it matters, a real Kafka. None looks at a
// structure where a behaviour can be seen: what counts is what a client pulls
// and what the store's watermarks say.
package acceptance
