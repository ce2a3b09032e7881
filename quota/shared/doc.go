// Package shared keeps quota buckets in a Redis, for all processes of a
// deployment (design 5.4). It owns the connection and the keys
// rate:laneway-quota:PREFIX:TENANT; the time is the server's.
//
// A charge is one AllowN of redis_rate, a script that is atomic; what it lacks is
// that a cost above the burst is ever allowed, and a way back. The first is a
// matter of the burst it is told ([quota.Claim.Reach]), the second a script of
// our own on the same key.
//
// What the Redis loses, the tenants gain: a bucket that is gone is full. Nothing
// else depends on it, so it needs no persistence.
package shared
