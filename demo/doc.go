// Package demo is Laneway's main job end to end: it replays a real chat room
// through the public API, pulls every mailbox back and compares it with an
// independent oracle, then sends one message to a large group while single
// chats flow, and measures.
//
// It owns nothing but what it prints. It trusts no count of the node's own:
// what it compares comes out of Pull, page by page.
package demo
