package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// maxPresenceEvents is how many events one Report may carry.
const maxPresenceEvents = 1000

// presenceService implements lanewayv1connect.PresenceServiceHandler.
type presenceService struct {
	deps Deps
	done <-chan struct{} // closed when the handler drains
}

// Report implements lanewayv1connect.PresenceServiceHandler.
func (s presenceService) Report(ctx context.Context, req *connect.Request[lanewayv1.ReportPresenceRequest]) (*connect.Response[lanewayv1.ReportPresenceResponse], error) {
	m := req.Msg
	if n := len(m.Events); n < 1 || n > maxPresenceEvents {
		return nil, invalid("%d events; send 1 to %d", n, maxPresenceEvents)
	}
	now := time.Now().UnixMilli()
	events := make([]records.Presence, len(m.Events))
	for i, e := range m.Events {
		p := records.Presence{Tenant: m.TenantId, User: e.GetUserId(), Device: e.GetDeviceId(), At: e.GetAtMs()}
		switch e.GetState() {
		case logv1.PresenceState_PRESENCE_STATE_ONLINE:
			p.Online = true
		case logv1.PresenceState_PRESENCE_STATE_OFFLINE:
		default:
			return nil, invalid("event %d is neither ONLINE nor OFFLINE", i)
		}
		if p.At == 0 {
			p.At = now
		}
		if _, err := p.Encode(); err != nil {
			return nil, invalid("event %d: %v", i, err)
		}
		events[i] = p
	}
	if err := s.deps.Presence.Report(ctx, events); err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.ReportPresenceResponse{}), nil
}

// Get implements lanewayv1connect.PresenceServiceHandler.
func (s presenceService) Get(_ context.Context, req *connect.Request[lanewayv1.GetPresenceRequest]) (*connect.Response[lanewayv1.GetPresenceResponse], error) {
	u := mailbox.User{Tenant: req.Msg.TenantId, ID: req.Msg.UserId}
	if err := u.Check(); err != nil {
		return nil, err
	}
	devices, complete := s.deps.Presence.Devices(u)
	res := &lanewayv1.GetPresenceResponse{Complete: complete}
	for _, d := range devices {
		state := logv1.PresenceState_PRESENCE_STATE_OFFLINE
		if d.Online {
			state, res.Online = logv1.PresenceState_PRESENCE_STATE_ONLINE, true
		}
		res.Devices = append(res.Devices, &lanewayv1.DevicePresence{DeviceId: d.Device, State: state, AtMs: d.At})
	}
	return connect.NewResponse(res), nil
}

// Notify implements lanewayv1connect.PresenceServiceHandler.
func (s presenceService) Notify(ctx context.Context, req *connect.Request[lanewayv1.NotifyRequest], out *connect.ServerStream[lanewayv1.NotifyResponse]) error {
	tenant := req.Msg.TenantId
	if err := mailbox.CheckID("tenant_id", tenant); err != nil {
		return err
	}
	feed, err := s.deps.Presence.Feed(tenant)
	if err != nil {
		return err
	}
	defer feed.Close()
	s.deps.Observer.NotifyStreams(1)
	defer s.deps.Observer.NotifyStreams(-1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.done:
			cancel(errShuttingDown)
		case <-ctx.Done():
		}
	}()
	for {
		batch, err := feed.Next(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		m := &lanewayv1.NotifyResponse{PullAll: batch.All}
		for _, n := range batch.News {
			m.News = append(m.News, &lanewayv1.UserNews{UserId: n.User, AvailableThrough: uint64(n.W)})
		}
		if err := send(ctx, out, m, s.deps.Limits.StreamWrite); err != nil {
			return err
		}
	}
}

// send sends one message of a stream; a client that does not read it in time
// loses its stream, not the node its memory.
func send[T any](ctx context.Context, out *connect.ServerStream[T], m *T, wait time.Duration) error {
	if rc := responseController(ctx); rc != nil {
		// Writers that know no deadlines (tests' recorders) have nothing to bound.
		_ = rc.SetWriteDeadline(time.Now().Add(wait))
		defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	}
	return out.Send(m)
}
