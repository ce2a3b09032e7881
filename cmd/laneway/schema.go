package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/stores/scylla"
)

// schemaTimeout bounds the whole of it: a cluster takes some seconds to agree on
// each table.
const schemaTimeout = 10 * time.Minute

func newSchemaCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "schema", Short: "Apply the schema of a cql:// store", GroupID: groupNode, Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaApplyCmd(a))
	return cmd
}

func newSchemaApplyCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply", Short: "Make the keyspace of a cql:// store fit this build; safe to repeat",
		Long: "Applies the schema files that the keyspace of store.url lacks, in order, makes the tables hold retention_days, and prints\n" +
			"what was done and which version the keyspace has now. What is there already is verified and left as it is; a schema that is\n" +
			"newer than this build is refused.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	a.outputFlag(cmd)
	create := cmd.Flags().Bool("create-keyspace", false, "make the keyspace if it is missing, over all datacenters")
	replication := cmd.Flags().Int("replication", 1, "replicas of a keyspace that is made; 3 survives the loss of a node")
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		if a.output != outputTable && a.output != outputJSON {
			return usagef("--output %q: use table or json", a.output)
		}
		if cmd.Flags().Changed("replication") && !*create {
			return usagef("--replication is for a keyspace that is made: it needs --create-keyspace")
		}
		if *replication < 1 {
			return usagef("--replication %d: use 1 or more", *replication)
		}
		// The schema is laid before a keyspace becomes the shadow and after: that the
		// file names the same one as the shadow is no mistake here.
		if err := cmd.Flags().Set("store-shadow-url", ""); err != nil {
			return usageError{err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if c.Store.Kind() != config.Scylla {
			return usagef("the store %s has no schema: name a cql:// store with --store", c.Store.Shown())
		}
		var keyspace *scylla.Replication
		if *create {
			keyspace = &scylla.Replication{Factor: *replication}
		}
		ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
		defer cancel()
		done, err := applySchema(ctx, &c.Config, keyspace)
		if err != nil {
			return err
		}
		if a.output == outputJSON {
			return writeJSON(a.out, done)
		}
		fmt.Fprintln(a.out, done.text())
		return nil
	})
	return cmd
}

// schemaDone is what applying the schema did.
type schemaDone struct {
	Keyspace        string   `json:"keyspace"`
	KeyspaceCreated bool     `json:"keyspace_created"`
	Applied         []string `json:"applied"`
	Version         int      `json:"version"`
	RetentionDays   int      `json:"retention_days"`
	RetentionRaised bool     `json:"retention_raised"`
}

func applySchema(ctx context.Context, c *config.Config, keyspace *scylla.Replication) (schemaDone, error) {
	if err := scylla.CheckURL(c.Store.URL); err != nil {
		return schemaDone{}, inputf("store %s: %w", c.Store.Shown(), err)
	}
	r, err := scylla.ApplySchema(ctx, scylla.SchemaOptions{
		Options:        scylla.Options{URL: c.Store.URL, RetentionDays: c.RetentionDays},
		CreateKeyspace: keyspace,
	})
	if err != nil {
		return schemaDone{}, fmt.Errorf("store %s: %w", c.Store.Shown(), err)
	}
	return schemaDone{r.Keyspace, r.KeyspaceCreated, append([]string{}, r.Files...), r.Version, r.RetentionDays, r.RetentionRaised}, nil
}

func (d schemaDone) text() string {
	what := "nothing to apply"
	if len(d.Applied) > 0 {
		what = "applied " + strings.Join(d.Applied, ", ")
	}
	if d.KeyspaceCreated {
		what = "made the keyspace, " + what
	}
	if d.RetentionRaised {
		what += fmt.Sprintf(", raised the retention to %d days", d.RetentionDays)
	}
	return fmt.Sprintf("keyspace %s: %s; it has schema version %d, for a retention of up to %d days", d.Keyspace, what, d.Version, d.RetentionDays)
}
