package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version = "dev"

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func newVersionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this binary", GroupID: groupNode,
		Args: cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			b := thisBuild()
			if a.output == outputJSON {
				return writeJSON(a.out, b)
			}
			revision := ""
			if b.Revision != "" {
				revision = " (" + b.Revision[:min(12, len(b.Revision))] + ")"
			}
			_, err := fmt.Fprintf(a.out, "laneway %s%s, %s, %s\n", b.Version, revision, b.Go, b.Platform)
			return err
		}),
	}
	a.outputFlag(cmd)
	return cmd
}
