// Package testservers starts real servers for tests (design 11): a Kafka broker
// and Cassandra from Maven artifacts, Debian's Redis, and a local Temporal; and
// proxies between them and what is tested, which fail as networks do.
//
// Each server binds to loopback on free ports, keeps its data in a temporary
// directory or in memory, and ends with the test or with the test process, even
// when that is killed. Servers that the tests of one package share end when the
// package's TestMain ends, which calls Main. What has to be fetched or built
// first is kept in the cache between runs. A server that can't be had fails the
// test; under `go test -short` nothing is started, and the test is skipped.
//
// RedisServer and CassandraServer know nothing of tests, and serve tools too.
package testservers
