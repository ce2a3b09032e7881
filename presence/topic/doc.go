// Package topic reads the presence topic into a presence.Table, and writes to it
// (design 4). It trusts no record and no position: the topic is soft state.
package topic
