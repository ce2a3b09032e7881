package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

const (
	clusterName = "active"
	// clusterID is any fixed UUID: there is only one cluster.
	clusterID = "0d5c2f0e-5c4a-4a56-9a55-6d1f64657673"
)

// serverConfig is the service's static configuration, with its database laid.
func (o Options) serverConfig() (*config.Config, error) {
	var c config.Config
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = o.IP
	if o.MetricsPort != 0 {
		c.Global.Metrics = &metrics.Config{Prometheus: &metrics.PrometheusConfig{
			ListenAddress: fmt.Sprintf("%s:%d", o.IP, o.MetricsPort),
			HandlerPath:   "/metrics",
		}}
	}
	if err := o.layStore(&c.Persistence); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10,
		MasterClusterName:        clusterName,
		CurrentClusterName:       clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled:                true,
			InitialFailoverVersion: 1,
			RPCAddress:             o.address(),
			ClusterID:              clusterID,
		}},
	}
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State = "disabled"
	c.Archival.Visibility.State = "disabled"
	c.NamespaceDefaults.Archival.History.State = "disabled"
	c.NamespaceDefaults.Archival.Visibility.State = "disabled"
	c.PublicClient.HostPort = o.address()
	c.Services = map[string]config.Service{}
	for _, name := range temporal.DefaultServices {
		port := o.Port
		if name != string(primitives.FrontendService) {
			p, err := freePort(o.IP)
			if err != nil {
				return nil, err
			}
			port = p
		}
		c.Services[name] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: o.IP}}
	}
	return &c, nil
}

// dynamicConfig is what makes the service quick on one machine. Measured with
// one parent and 64 child workflows; each value is worth its line.
func (o Options) dynamicConfig() dynamicconfig.Client {
	c := dynamicconfig.StaticClient{
		// As the Temporal CLI's development server has them: a small cache, and
		// no limit that a burst on one machine would meet.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():                 8096,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
		dynamicconfig.MakeKey("frontend.persistenceMaxQPS"):              10000,
		dynamicconfig.MakeKey("history.persistenceMaxQPS"):               45000,
		// Unlike the CLI's, it doesn't set
		// system.forceSearchAttributesCacheRefreshOnRead: the attributes are there
		// before the service starts, and it costs six reads for each workflow.

		// A client's wait for a result can miss the workflow's close under load
		// (the subscriber's channel holds one notification); it then answers only
		// when the long poll ends, which is 20 seconds by default.
		dynamicconfig.HistoryLongPollExpirationInterval.Key(): 2 * time.Second,
		// The tasks that start children queue for their parent's lock. With the
		// default of 500ms most of them give up and are tried again later.
		dynamicconfig.HistoryCacheNonUserContextLockTimeout.Key(): 2 * time.Second,
		// A queue is read at most this often a second and shard: the default of
		// 20 adds up to 50ms to each step.
		dynamicconfig.TransferProcessorMaxPollRPS.Key(): 100,
	}
	for k, v := range o.DynamicConfig {
		c[dynamicconfig.MakeKey(k)] = v
	}
	return c
}

// DynamicValue reads a dynamic config value written as JSON. The service wants
// an int where JSON has a whole number.
func DynamicValue(s string) (any, error) {
	d := json.NewDecoder(bytes.NewBufferString(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return wholeNumbers(v)
}

func wholeNumbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n), nil
		}
		return v.Float64()
	case map[string]any:
		for k := range v {
			if v[k], err = wholeNumbers(v[k]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = wholeNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
