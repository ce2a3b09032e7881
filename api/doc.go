// Package api serves Laneway's public services over Connect: gRPC, gRPC-Web and
// JSON over HTTP on one port (design 9).
//
// It owns the cursor format, the limits of requests and streams, the mapping of
// every error to a code and a stable reason, and who may connect. It decides
// nothing about delivery: positions come from [Shards], entries from a
// mailbox.MailboxStore, and commits and membership from package conversation.
// It never reads above a lane's durable watermark and never logs payloads.
package api
