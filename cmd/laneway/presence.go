package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

func newPresenceCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "presence", Short: "Say and show who is online, and hear of their news as a gateway does", GroupID: groupUse,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newPresenceSetCmd(a, "online", logv1.PresenceState_PRESENCE_STATE_ONLINE),
		newPresenceSetCmd(a, "offline", logv1.PresenceState_PRESENCE_STATE_OFFLINE),
		newPresenceShowCmd(a), newPresenceNotifyCmd(a),
	)
	return cmd
}

func newPresenceSetCmd(a *app, word string, state logv1.PresenceState) *cobra.Command {
	var device string
	long := "A device that is still online has to say so again within presence.ttl of the node."
	if word == "offline" {
		long = "A device that says nothing more counts as offline after presence.ttl of the node."
	}
	long += "\nWithout --device it is the device " + operator + ", which no app of the user has."
	cmd := &cobra.Command{
		Use: word + " USER…", Short: "Say that a device of users is " + word, Long: long,
		Args: cobra.RangeArgs(1, 1000),
		RunE: a.action(func(ctx context.Context, users []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			events := make([]*lanewayv1.PresenceEvent, len(users))
			for i, u := range users {
				events[i] = &lanewayv1.PresenceEvent{UserId: u, DeviceId: device, State: state}
			}
			if err := cl.ReportPresence(ctx, a.tenant, events...); err != nil {
				return err
			}
			of := printable(users[0])
			if len(users) > 1 {
				of = fmt.Sprintf("%d users", len(users))
			}
			_, err = fmt.Fprintf(a.out, "device %s of %s is %s\n", printable(device), of, word)
			return err
		}),
	}
	cmd.Flags().StringVar(&device, "device", operator, "which device of the users")
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	return cmd
}

func newPresenceShowCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show USER", Short: "Show a user's devices",
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			p, err := cl.Presence(ctx, a.tenant, args[0])
			if err != nil {
				return err
			}
			return a.showPresence(args[0], p)
		}),
	}
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

type devicePresence struct {
	Device string `json:"device"`
	State  string `json:"state"`
	At     string `json:"at"`
}

func (a *app) showPresence(user string, p *lanewayv1.GetPresenceResponse) error {
	devices := make([]devicePresence, len(p.Devices))
	for i, d := range p.Devices {
		state := "offline"
		if d.State == logv1.PresenceState_PRESENCE_STATE_ONLINE {
			state = "online"
		}
		devices[i] = devicePresence{d.DeviceId, state, timeText(d.AtMs)}
	}
	if a.output == outputJSON {
		return writeJSON(a.out, struct {
			User     string           `json:"user"`
			Online   bool             `json:"online"`
			Complete bool             `json:"complete"`
			Devices  []devicePresence `json:"devices"`
		}{user, p.Online, p.Complete, devices})
	}
	rows := make([][]string, len(devices))
	for i, d := range devices {
		rows[i] = []string{d.Device, d.State, d.At}
	}
	is := "offline"
	if p.Online {
		is = "online"
	}
	if len(rows) == 0 {
		is = "offline: no devices known"
	} else if err := writeTable(a.out, []string{"DEVICE", "STATE", "AT"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s is %s\n", printable(user), is)
	if !p.Complete {
		fmt.Fprintln(a.err, "the node has not read the whole presence topic yet: there may be more")
	}
	return nil
}

func newPresenceNotifyCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify", Short: "Tell which users who are online have something new, as gateways are told",
		Long: "Prints a line for each user of the tenant who is online and may have something new to pull, until it is interrupted,\n" +
			"and one that says so whenever users may have been left out, as at the beginning.",
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			err = cl.Notify(ctx, a.tenant, a.printNews)
			if errors.Is(err, context.Canceled) {
				return nil // the way to end it
			}
			return err
		}),
	}
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printNews(n *lanewayv1.NotifyResponse) error {
	if a.output == outputJSON {
		type news struct {
			User    string `json:"user"`
			Through string `json:"available_through"`
		}
		list := make([]news, len(n.News))
		for i, u := range n.News {
			list[i] = news{u.UserId, seqText(u.AvailableThrough)}
		}
		return json.NewEncoder(a.out).Encode(struct {
			PullAll bool   `json:"pull_all"`
			News    []news `json:"news"`
		}{n.PullAll, list})
	}
	if n.PullAll {
		if _, err := fmt.Fprintln(a.out, "pull for everybody: users may have been left out"); err != nil {
			return err
		}
	}
	for _, u := range n.News {
		if _, err := fmt.Fprintf(a.out, "mailbox of %s: complete through %s\n", printable(u.UserId), orDash(seqText(u.AvailableThrough))); err != nil {
			return err
		}
	}
	return nil
}
