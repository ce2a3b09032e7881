package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/laneway/laneway/mailbox"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// membershipService implements lanewayv1connect.MembershipServiceHandler.
type membershipService struct{ deps Deps }

// Join implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) Join(ctx context.Context, req *connect.Request[lanewayv1.JoinRequest]) (*connect.Response[lanewayv1.MembershipResponse], error) {
	m := req.Msg
	c, err := s.change(m.TenantId, m.GroupId, m.ClientMessageId, m.ActorId, m.UserIds)
	if err != nil {
		return nil, err
	}
	return membershipResponse(s.deps.Conversations.Join(ctx, c))
}

// Leave implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) Leave(ctx context.Context, req *connect.Request[lanewayv1.LeaveRequest]) (*connect.Response[lanewayv1.MembershipResponse], error) {
	m := req.Msg
	c, err := s.change(m.TenantId, m.GroupId, m.ClientMessageId, m.ActorId, m.UserIds)
	if err != nil {
		return nil, err
	}
	return membershipResponse(s.deps.Conversations.Leave(ctx, c))
}

// Import implements lanewayv1connect.MembershipServiceHandler. Nothing is
// applied before the last user was read and found good.
func (s membershipService) Import(ctx context.Context, in *connect.ClientStream[lanewayv1.ImportRequest]) (*connect.Response[lanewayv1.MembershipResponse], error) {
	var first *lanewayv1.ImportRequest
	var users []string
	seen := make(map[string]struct{})
	for in.Receive() {
		m := in.Msg()
		if first == nil {
			first = m
			if err := checkChange(m.TenantId, m.GroupId, m.ClientMessageId, m.ActorId); err != nil {
				return nil, err
			}
		} else if m.TenantId != "" || m.GroupId != "" || m.ClientMessageId != "" || m.ActorId != "" {
			return nil, invalid("only the first message of an import carries names; later ones carry user_ids alone")
		}
		if len(users)+len(m.UserIds) > s.deps.Limits.MaxImportUsers {
			return nil, invalid("an import takes at most %d users; split it (users that are members already change nothing)", s.deps.Limits.MaxImportUsers)
		}
		for _, id := range m.UserIds {
			if err := mailbox.CheckID("user_ids", id); err != nil {
				return nil, invalid("user %d of the import: %v; nothing was applied", len(users)+1, err)
			}
			if _, twice := seen[id]; twice {
				return nil, invalid("user %d of the import repeats an earlier one; name each user once; nothing was applied", len(users)+1)
			}
			seen[id] = struct{}{}
			users = append(users, id)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if first == nil || len(users) == 0 {
		return nil, invalid("the import names no users")
	}
	clear(seen)
	return membershipResponse(s.deps.Conversations.Import(ctx, MembershipChange{
		Group: mailbox.Group{Tenant: first.TenantId, ID: first.GroupId}, Users: users,
		ClientMessageID: first.ClientMessageId, Actor: first.ActorId,
	}))
}

// Get implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) Get(ctx context.Context, req *connect.Request[lanewayv1.GetGroupRequest]) (*connect.Response[lanewayv1.GetGroupResponse], error) {
	g := mailbox.Group{Tenant: req.Msg.TenantId, ID: req.Msg.GroupId}
	if err := g.Check(); err != nil {
		return nil, err
	}
	st, err := s.deps.Conversations.Group(ctx, g)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.GetGroupResponse{
		Generation: st.Generation, MembershipVersion: st.Version, ConversationSeq: st.ConversationSeq,
		MemberCount: st.MemberCount, SlotHighWater: st.SlotHighWater, TargetShards: st.TargetShards,
	}), nil
}

func (s membershipService) change(tenant, group, clientMessageID, actor string, users []string) (MembershipChange, error) {
	if err := checkChange(tenant, group, clientMessageID, actor); err != nil {
		return MembershipChange{}, err
	}
	if len(users) == 0 {
		return MembershipChange{}, invalid("user_ids is empty")
	}
	if n := len(users); n > s.deps.Limits.MaxUsersPerCall {
		return MembershipChange{}, invalid("user_ids has %d users, at most %d are allowed in one call; use Import for more", n, s.deps.Limits.MaxUsersPerCall)
	}
	if err := checkUsers("user_ids", users); err != nil {
		return MembershipChange{}, err
	}
	return MembershipChange{Group: mailbox.Group{Tenant: tenant, ID: group}, Users: users, ClientMessageID: clientMessageID, Actor: actor}, nil
}

func checkChange(tenant, group, clientMessageID, actor string) error {
	if err := (mailbox.Group{Tenant: tenant, ID: group}).Check(); err != nil {
		return err
	}
	if err := mailbox.CheckID("client_message_id", clientMessageID); err != nil {
		return err
	}
	return mailbox.CheckID("actor_id", actor)
}

func membershipResponse(m Membership, err error) (*connect.Response[lanewayv1.MembershipResponse], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.MembershipResponse{
		Generation: m.Generation, MembershipVersion: m.Version, ConversationSeq: m.ConversationSeq,
		MemberCount: m.MemberCount, Changed: m.Changed,
	}), nil
}
