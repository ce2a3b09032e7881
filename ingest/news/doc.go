// Package news remembers, for each lane of a shard, whom the dispatches are for
// that W has not passed yet, so that after W moved those can be told who have
// something new, and nobody else has to look (design 9, Watch).
//
// It is pure and bounded. It never has to be complete: of what it does not know it
// says so, and then everybody who waits in the lane looks for himself. No entry
// depends on it.
package news
