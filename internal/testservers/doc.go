// Package testservers starts real servers for tests (design 11): a Kafka broker
// from Maven artifacts, and a local Temporal.
//
// Each server binds to loopback on free ports, keeps its data in a temporary
// directory or in memory, and ends with the test or with the test process, even
// when that is killed. What has to be fetched or built first is kept in the
// cache between runs. A server that can't be had fails the test; under `go test
// -short` nothing is started, and the test is skipped.
package testservers
