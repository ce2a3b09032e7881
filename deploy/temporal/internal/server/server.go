package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// Server is a running service with its Web UI.
type Server struct {
	// Address is where gRPC clients connect, as HOST:PORT.
	Address string
	// UIURL is the Web UI's address, or empty.
	UIURL string

	temporal temporal.Server
	ui       *uiserver.Server
	logger   *quietLogger
}

// Start starts the service. It returns once every namespace answers with its
// search attributes and the Web UI serves.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := o.choosePorts(); err != nil {
		return nil, err
	}
	s := &Server{Address: o.address(), logger: newLogger(o.Logger)}
	var err error
	if s.temporal, err = o.newService(s.logger); err != nil {
		return nil, err
	}
	if err := s.temporal.Start(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	if err := o.ensureNamespaces(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	if o.UIPort == NoUI {
		return s, nil
	}
	s.UIURL = "http://" + net.JoinHostPort(o.IP, strconv.Itoa(o.UIPort))
	s.ui = o.newUI()
	go func() { _ = s.ui.Start() }() // ends the process itself if it can't listen
	if err := waitForUI(ctx, s.UIURL); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop stops both.
func (s *Server) Stop() {
	s.logger.quiet.Store(true) // the service warns a lot while it goes down
	if s.ui != nil {
		s.ui.Stop()
	}
	_ = s.temporal.Stop()
}

func (o Options) newService(logger *quietLogger) (temporal.Server, error) {
	conf, err := o.serverConfig()
	if err != nil {
		return nil, err
	}
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, err
	}
	claims, err := authorization.GetClaimMapperFromConfig(&conf.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, svc := range conf.Services {
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(net.JoinHostPort(o.IP, strconv.Itoa(svc.RPC.GRPCPort)))
	}
	return temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(o.dynamicConfig()),
	)
}

func (o Options) newUI() *uiserver.Server {
	names := o.namespaces()
	return uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host:                o.IP,
		Port:                o.UIPort,
		TemporalGRPCAddress: o.address(),
		EnableUI:            true,
		DefaultNamespace:    names[len(names)-1],
		CORS:                uiconfig.CORS{CookieInsecure: true},
		HideLogs:            true,
		DisableNewsFetch:    true,
	}))
}

func waitForUI(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return err
	}
	return retry(ctx, func() error {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("web ui: %w", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("web ui: %s", resp.Status)
		}
		return nil
	})
}
