package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/config"
)

// configFlags adds --config and a flag for every setting, and returns what loads
// them. Every command that runs or checks a node uses it.
func (a *app) configFlags(cmd *cobra.Command) func() (*config.Loaded, error) {
	file := cmd.Flags().String("config", a.env("LANEWAY_CONFIG", ""), "YAML file with settings")
	config.AddFlags(cmd.Flags())
	store := cmd.Flags().String("store", "", "short for --store-url")
	return func() (*config.Loaded, error) {
		if f := cmd.Flags(); f.Changed("store") {
			if f.Changed("store-url") {
				return nil, usagef("--store and --store-url are the same setting: give one of them")
			}
			if err := f.Set("store-url", *store); err != nil {
				return nil, usageError{err}
			}
		}
		l, err := config.Load(config.Input{File: *file, Environ: a.environ, Flags: cmd.Flags()})
		if err != nil {
			return nil, inputError{err} // a file that cannot be read is as wrong as its content
		}
		return l, nil
	}
}

func newConfigCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Print the effective settings, with secrets masked", GroupID: groupNode,
		Long: "Prints the effective settings: defaults, then the file of --config, then LANEWAY_ variables, then flags.\n" +
			"The default output is a YAML file that --config accepts, with the source of each setting in brackets.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	var output string
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "output format: yaml, table or json")
	cmd.RunE = a.action(func(context.Context, []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		switch output {
		case "yaml":
			_, err := fmt.Fprint(a.out, l.YAML())
			return err
		case outputJSON:
			return writeJSON(a.out, l.Settings())
		case outputTable:
			var rows [][]string
			for _, s := range l.Settings() {
				rows = append(rows, []string{s.Key, s.Text(), s.Source, s.Variable, s.Help})
			}
			return writeTable(a.out, []string{"SETTING", "VALUE", "SOURCE", "VARIABLE", "MEANING"}, rows)
		}
		return usagef("--output %q: use yaml, table or json", output)
	})
	return cmd
}
