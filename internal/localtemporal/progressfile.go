package localtemporal

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// The process that builds leaves its progress in a file beside the binary, for
// those that wait. It is only for the eye: a lost update doesn't matter.

func (s *source) progressFile() string { return filepath.Join(s.cache, "progress.json") }

func (s *source) writeProgress(p Progress) {
	if data, err := json.Marshal(p); err == nil {
		_ = os.WriteFile(s.progressFile(), data, 0o644)
	}
}

// reportOther passes on the progress of the process that builds.
func (s *source) reportOther(o Options) {
	p := Progress{Phase: PhaseCompile}
	if data, err := os.ReadFile(s.progressFile()); err == nil {
		_ = json.Unmarshal(data, &p)
	}
	p.Elsewhere = true
	o.progress(p)
}
