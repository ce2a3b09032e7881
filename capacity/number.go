package capacity

import (
	"math"
	"strconv"
	"strings"
)

// Number writes a figure as people read it: 12,345.6, with three digits behind
// the point at most.
func Number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', 3, 64)
	whole, part, _ := strings.Cut(s, ".")
	var b strings.Builder
	if v < 0 {
		b.WriteByte('-')
	}
	for i, digit := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	if part = strings.TrimRight(part, "0"); part != "" {
		b.WriteString("." + part)
	}
	return b.String()
}
