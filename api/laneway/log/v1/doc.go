// Package logv1 holds the generated types of the records on the outbox, dispatch
// and quarantine topics. Package records checks, encodes and decodes them.
package logv1
