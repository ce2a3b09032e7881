package sim

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// planted are bugs, each a line or two of the product changed for the worse. The
// simulation has to find each within a thousand seeds.
var planted = []struct{ name, file, right, wrong string }{
	{
		"AnOwnerStartsBehindWhatWasAdmitted", "ingest/shard.go",
		"	s.start = low.NextOffset(logStart)\n",
		"	s.start = max(low, st.F).NextOffset(logStart)\n",
	},
	{
		// The simulation's first find: it was in the product.
		"EpochMarkersAreReadFromTheLastCachedOneOn", "ingest/shard.go",
		"	if low > 0 {\n		s.bounds.Add(low.Epoch(), low.Offset())\n	}\n	marks, err := s.cfg.Log.Epochs(ctx, low.NextOffset(logStart))\n",
		"	from := logStart\n	for _, b := range st.Boundaries {\n		from = max(from, b.Offset)\n	}\n	marks, err := s.cfg.Log.Epochs(ctx, from)\n",
	},
	{
		"AFailedAppendCountsAsDurable", "ingest/hotpath.go",
		"				first = r.Err\n			}\n			continue\n",
		"				first = r.Err\n			}\n			receipts = append(receipts, mailbox.NewDurable(chunks[i].Ref))\n			continue\n",
	},
	{
		"LanesOpenAtOnceAfterALostTail", "ingest/opening.go",
		"	case before.Incarnation != incarnation: // also a shard that this store does not know\n		return true\n",
		"	case before.Incarnation != incarnation: // also a shard that this store does not know\n		return false\n",
	},
	{
		"APositionIsCommittedBeforeItsDispatches", "fanout/partition.go",
		"		if !p.process(ctx, batch) {\n",
		"		p.c.commits.put(p.number, batch[len(batch)-1].Offset+1)\n		if !p.process(ctx, batch) {\n",
	},
	{
		"RecordsOfWritersBeforeALostTailCount", "fanout/epochs.go",
		"	return p.marks.epochs.Stale(commitEpoch, offset)\n",
		"	return p.marks.epochs.Stale(commitEpoch, offset) && false\n",
	},
	{
		"ARepetitionIsNotLookedUp", "conversation/service.go",
		"	b, err := s.cfg.Heads.Committed(ctx, c, k.sender, k.clientMessageID)\n	if errors.Is(err, mailbox.ErrNotFound) {\n",
		"	b, err := s.cfg.Heads.Committed(ctx, c, k.sender, k.clientMessageID)\n	if true || errors.Is(err, mailbox.ErrNotFound) {\n",
	},
}

var foundSeed = regexp.MustCompile(`seed (\d+); what it does`)

// TestFindsPlantedBugs builds the simulation with one bug at a time.
func TestFindsPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulation once for each bug")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(root, filepath.FromSlash(p.file))
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(source), p.right), "%s has changed: plant the bug anew", p.file)
			worse := filepath.Join(dir, "worse.go")
			require.NoError(t, os.WriteFile(worse, []byte(strings.Replace(string(source), p.right, p.wrong, 1)), 0o600))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: worse}})
			require.NoError(t, err)
			list := filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(list, overlay, 0o600))

			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
			defer cancel()
			program := filepath.Join(dir, "sim.test")
			build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", list, "-o", program, ".")
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			run := exec.CommandContext(ctx, program, "-test.run", "Interleavings", "-seeds", "5000")
			run.Dir = dir
			out, err = run.CombinedOutput()
			require.Error(t, err, "5,000 seeds do not find it")
			found := foundSeed.FindSubmatch(out)
			require.NotNil(t, found, "%s", out)
			t.Logf("found by seed %s", found[1])
		})
	}
}
