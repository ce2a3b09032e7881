package workflows

import (
	"strconv"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// thousands is a number as people read it: 50,094.
func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted is so many of something, whose plural is regular but for "entry".
func counted(n int, what string) string {
	if n != 1 {
		if stem, ok := strings.CutSuffix(what, "y"); ok {
			what = stem + "ie"
		}
		what += "s"
	}
	return thousands(n) + " " + what
}

// allDurable says that everything of that kind is.
func allDurable(n int, what string) string {
	if n == 1 {
		return "The only " + what + " is durable."
	}
	return "All " + counted(n, what) + " are durable."
}

// listed names lanes: "lane 3", "lanes 3, 17 and 40".
func listed(lanes []mailbox.Lane) string {
	text := "lane"
	if len(lanes) != 1 {
		text += "s"
	}
	for i, l := range lanes {
		switch {
		case i == 0:
			text += " "
		case i == len(lanes)-1:
			text += " and "
		default:
			text += ", "
		}
		text += strconv.Itoa(int(l))
	}
	return text
}
