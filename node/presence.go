package node

import (
	"context"
	"time"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/notify"
	"github.com/laneway/laneway/presence"
	"github.com/laneway/laneway/presence/topic"
	"github.com/laneway/laneway/records"
)

// nodePresence is who is online, as this node knows it.
type nodePresence struct {
	table     *presence.Table
	follower  *topic.Follower // nil: presence is off
	publisher *topic.Publisher
}

// openHub makes what tells of news. It is there before the first shard works.
func (n *Node) openHub() {
	n.presence.table = presence.NewTable(presence.Limits{TTL: n.cfg.Presence.TTL, Devices: n.cfg.Presence.MaxDevices})
	n.hub = notify.NewHub(notify.Config{
		Shards: n.cfg.Shards, Table: n.presence.table, Watermark: (*served)(n).Watermark,
		Chosen: func(chosen, members int) {
			n.metrics.NotifyMembers.Add("told", chosen)
			n.metrics.NotifyMembers.Add("spared", members-chosen)
		},
	})
}

// startPresence follows the presence topic. Nothing about it keeps the node from
// its work: without it, gateways hear of their users' news late.
func (n *Node) startPresence(run context.Context) (err error) {
	if !n.cfg.Presence.Enabled {
		return nil
	}
	p := &n.presence
	name := broker.PresenceTopic(n.cfg.Log.TopicPrefix)
	if p.publisher, err = topic.NewPublisher(n.clientConfig("presence-publisher"), name); err != nil {
		return err
	}
	n.onStop(p.publisher.Close)
	p.follower = topic.NewFollower(topic.FollowConfig{
		Broker: n.clientConfig("presence"), Topic: name, Table: p.table, Came: n.hub.CameOnline, Logger: n.log.With("part", "presence"),
		Counted: n.metrics.PresenceEvents.Inc,
		Rebuilt: func() {
			n.metrics.PresenceComplete.Set(1)
			n.hub.Rebuilt()
		},
	})
	n.spawn(func() {
		if !n.ensurePresenceTopic(run) {
			return
		}
		if err := p.follower.Run(run); err != nil && run.Err() == nil {
			n.log.Error("the presence topic is not followed; notifications of users without an open Watch come late", "error", err)
		}
	})
	n.spawn(func() { n.gaugePresence(run) })
	return nil
}

// ensurePresenceTopic waits until the topic is there, making it if it may.
func (n *Node) ensurePresenceTopic(run context.Context) bool {
	wait := time.Second
	for run.Err() == nil {
		err := n.tryPresenceTopic(run)
		if err == nil {
			return true
		}
		if run.Err() == nil {
			n.log.Warn("the presence topic is not there; trying again (set presence.enabled=false to do without it)", "error", err, "in", wait)
		}
		select {
		case <-run.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Minute)
	}
	return false
}

func (n *Node) tryPresenceTopic(run context.Context) error {
	ctx, cancel := context.WithTimeout(run, time.Minute)
	defer cancel()
	c := n.clientConfig("presence-setup")
	c.Registerer = nil // it may be made again
	adm, err := broker.NewClient(c)
	if err != nil {
		return err
	}
	defer adm.Close()
	return broker.EnsurePresenceTopic(ctx, adm, broker.TopicsConfig{Prefix: n.cfg.Log.TopicPrefix, Replication: n.cfg.Log.Replication}, n.cfg.Presence.TTL)
}

func (n *Node) gaugePresence(run context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		online, devices := n.presence.table.Stats()
		n.metrics.PresenceOnline.Set(float64(online))
		n.metrics.PresenceDevices.Set(float64(devices))
		select {
		case <-run.Done():
			return
		case <-tick.C:
		}
	}
}

// api is what the API serves of it: nothing when presence is off.
func (p *nodePresence) api(n *Node) api.Presence {
	if p.follower == nil {
		return nil
	}
	return (*present)(n)
}

// present answers the API's questions about who is online.
type present Node

// Report implements api.Presence.
func (n *present) Report(ctx context.Context, events []records.Presence) error {
	return n.presence.publisher.Publish(ctx, events...)
}

// Devices implements api.Presence.
func (n *present) Devices(u mailbox.User) (devices []presence.DeviceState, complete bool) {
	return n.presence.table.Devices(u, time.Now()), n.presence.follower.Complete()
}

// Feed implements api.Presence.
func (n *present) Feed(tenant string) (*notify.Feed, error) { return n.hub.Feed(tenant) }
