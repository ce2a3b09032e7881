package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

func newWatchCmd(a *app) *cobra.Command {
	var user, cursor string
	cmd := &cobra.Command{
		Use: "watch --user USER", Short: "Tell when a mailbox has something new", GroupID: groupUse,
		Long: "Prints one line at once and one whenever there is something new to pull, until it is interrupted.\n" +
			"`laneway pull --follow` prints the entries themselves.",
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			err = cl.Watch(ctx, client.Mailbox{Tenant: a.tenant, User: user}, cursor, func(w *lanewayv1.WatchResponse) error {
				if a.output == outputJSON {
					return json.NewEncoder(a.out).Encode(struct {
						User    string `json:"user"`
						Through string `json:"available_through"`
					}{user, seqText(w.AvailableThrough)})
				}
				_, err := fmt.Fprintf(a.out, "mailbox of %s: complete through %s\n", printable(user), orDash(seqText(w.AvailableThrough)))
				return err
			})
			if errors.Is(err, context.Canceled) {
				return nil // the way to end it
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&user, "user", "", "whose mailbox (required)")
	cmd.Flags().StringVar(&cursor, "cursor", "", "position of the reader")
	must(cmd.MarkFlagRequired("user"))
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}
