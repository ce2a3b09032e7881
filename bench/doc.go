// Package bench measures Laneway against raw baselines in the same run: the
// same bytes through the bare client library. Figures are ratios; absolute
// times depend on the machine and on what else it does.
//
//	make bench
//
// prints the table. docs/benchmarks.md says what each figure means and what was
// measured.
package bench
