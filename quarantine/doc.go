// Package quarantine keeps the records that cannot be processed, with the
// reason and the place they came from, so that one bad record neither blocks
// its partition nor gets lost (design 5.5).
//
// It owns the quarantine topic. What it reads back it trusts no more than the
// first time.
package quarantine
