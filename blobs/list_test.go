package blobs

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListNamesWhatIsBelowAPrefixAndDeleteMayBeRepeated.
func TestListNamesWhatIsBelowAPrefixAndDeleteMayBeRepeated(t *testing.T) {
	for name, open := range map[string]func() (*Bucket, error){
		"file": func() (*Bucket, error) { return OpenDir(t.Context(), filepath.Join(t.TempDir(), "blobs")) },
		"mem":  func() (*Bucket, error) { return Open(t.Context(), "mem://") },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := open()
			require.NoError(t, err)
			defer b.Close()
			listed := func(prefix string) map[string]int64 {
				out := map[string]int64{}
				require.NoError(t, b.List(t.Context(), prefix, func(key string, size int64) bool { out[key] = size; return true }))
				return out
			}
			require.Empty(t, listed("membership/"))
			for key, size := range map[string]int{"membership/ab/1/2/bitmap-7": 3, "membership/ab/1/3/change-x": 4, "membership/abc/1/1/bitmap-0": 5, "other/ab": 6} {
				require.NoError(t, b.Put(t.Context(), key, make([]byte, size)))
			}
			require.Equal(t, map[string]int64{"membership/ab/1/2/bitmap-7": 3, "membership/ab/1/3/change-x": 4}, listed("membership/ab/"))
			require.Len(t, listed("membership/"), 3)
			n := 0
			require.NoError(t, b.List(t.Context(), "", func(string, int64) bool { n++; return n < 2 }))
			require.Equal(t, 2, n, "it stops when it is told to")
			for range 2 {
				require.NoError(t, b.Delete(t.Context(), "membership/ab/1/2/bitmap-7"))
			}
			require.Equal(t, map[string]int64{"membership/ab/1/3/change-x": 4}, listed("membership/ab/"))
			require.Error(t, b.Delete(t.Context(), "../x"))
		})
	}
}
