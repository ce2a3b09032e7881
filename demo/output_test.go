package demo

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAStepIsToldToItsEnd: one that ends soon after a line would look as if it had
// been given up in the middle.
func TestAStepIsToldToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		o := &output{w: &out}
		b := o.bar("import event: lanes", 128)
		time.Sleep(plainEvery)
		b.set(0)
		time.Sleep(plainEvery)
		b.set(49)
		b.set(128)
		b.end()
		require.Equal(t, "import event: lanes: 0 of 128\nimport event: lanes: 49 of 128\nimport event: lanes: 128 of 128\n", out.String())
		out.Reset()
		b = o.bar("a short step", 5)
		b.set(5)
		b.end()
		require.Empty(t, out.String())
	})
}

// TestAReplaySaysHowLongItTakes: by what this run did, not by what an earlier one
// had done.
func TestAReplaySaysHowLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := (&output{w: &out}).bar("replay", 10_000).pace(4000)
		b.set(4000)
		time.Sleep(10 * time.Second)
		b.set(5000)
		require.Equal(t, "replay: 5000 of 10000, 100/s, 50s left\n", out.String())
		time.Sleep(50 * time.Second)
		out.Reset()
		b.set(10_000)
		b.end()
		require.Equal(t, "replay: 10000 of 10000, 100/s\n", out.String())
	})
}
