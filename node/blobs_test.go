package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs/s3test"
	"github.com/laneway/laneway/config"
)

// lookAtBlobs returns what the preflight says of a bucket.
func lookAtBlobs(t *testing.T, url string) (passed []string, problems []Problem) {
	t.Helper()
	l, err := config.Load(config.Input{Environ: []string{"LANEWAY_BLOBS_URL=" + url, "LANEWAY_DATA_DIR=" + t.TempDir()}})
	require.NoError(t, err)
	checkBlobs(t.Context(), &l.Config, func(what string) { passed = append(passed, what) }, func(fix, format string, _ ...any) {
		problems = append(problems, Problem{format, fix})
	})
	return passed, problems
}

func TestCheckSaysWhatIsWrongWithTheBucket(t *testing.T) {
	s3test.Login(t, s3test.AccessKey, s3test.SecretKey)
	s := s3test.Start(t)
	s.MakeBucket("there")
	passed, problems := lookAtBlobs(t, s.URL("there"))
	require.Empty(t, problems)
	require.Len(t, passed, 1)
	_, problems = lookAtBlobs(t, s.URL("nobody-made-it"))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Fix, "make the bucket")
	s3test.Login(t, s3test.AccessKey, "wrong")
	_, problems = lookAtBlobs(t, s.URL("there"))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Fix, "AWS_ACCESS_KEY_ID")
	s.Kill()
	_, problems = lookAtBlobs(t, s.URL("there"))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Fix, "start the object store")
}

func TestCheckOfAFolderMakesNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	passed, problems := lookAtBlobs(t, "file://"+dir)
	require.Empty(t, problems)
	require.Len(t, passed, 1)
	require.NoDirExists(t, dir)
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	_, problems = lookAtBlobs(t, "file://"+dir)
	require.Len(t, problems, 1)
}
