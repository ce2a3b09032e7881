package api

import (
	"context"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// membershipService implements lanewayv1connect.MembershipServiceHandler.
type membershipService struct{ deps Deps }

// Join implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) Join(ctx context.Context, req *connect.Request[lanewayv1.JoinRequest]) (*connect.Response[lanewayv1.MembershipResponse], error) {
	m := req.Msg
	if err := s.checkCount(len(m.UserIds)); err != nil {
		return nil, err
	}
	return membershipResponse(s.deps.Conversations.Join(ctx, conversation.MembershipRequest{
		Group: mailbox.Group{Tenant: m.TenantId, ID: m.GroupId}, Users: m.UserIds, Actor: m.ActorId, ClientMessageID: m.ClientMessageId,
	}))
}

// Leave implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) Leave(ctx context.Context, req *connect.Request[lanewayv1.LeaveRequest]) (*connect.Response[lanewayv1.MembershipResponse], error) {
	m := req.Msg
	if err := s.checkCount(len(m.UserIds)); err != nil {
		return nil, err
	}
	return membershipResponse(s.deps.Conversations.Leave(ctx, conversation.MembershipRequest{
		Group: mailbox.Group{Tenant: m.TenantId, ID: m.GroupId}, Users: m.UserIds, Actor: m.ActorId, ClientMessageID: m.ClientMessageId,
	}))
}

func (s membershipService) checkCount(users int) error {
	if most := s.deps.Limits.MaxUsersPerCall; users > most {
		return invalid("user_ids has %d users, at most %d are allowed in one call; import more with MembershipService.Import, or call again", users, most)
	}
	return nil
}

// Import implements lanewayv1connect.MembershipServiceHandler. Nothing is
// applied before the last message of the stream has arrived.
func (s membershipService) Import(ctx context.Context, in *connect.ClientStream[lanewayv1.ImportRequest]) (*connect.Response[lanewayv1.MembershipResponse], error) {
	var r conversation.MembershipRequest
	for first := true; in.Receive(); first = false {
		m := in.Msg()
		if first {
			r.Group = mailbox.Group{Tenant: m.TenantId, ID: m.GroupId}
			r.Actor, r.ClientMessageID = m.ActorId, m.ClientMessageId
		} else if m.TenantId != "" || m.GroupId != "" || m.ClientMessageId != "" || m.ActorId != "" {
			return nil, invalid("only the first message of an import carries names; later ones carry user_ids alone")
		}
		// Checked while reading: a stream without an end must not fill the memory.
		if most := s.deps.Limits.MaxImportUsers; len(r.Users)+len(m.UserIds) > most {
			return nil, invalid("an import takes at most %d users; split it (users that are members already change nothing)", most)
		}
		r.Users = append(r.Users, m.UserIds...)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return membershipResponse(s.deps.Conversations.Import(ctx, r))
}

// Get implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) Get(ctx context.Context, req *connect.Request[lanewayv1.GetGroupRequest]) (*connect.Response[lanewayv1.GetGroupResponse], error) {
	g, err := s.deps.Conversations.Group(ctx, mailbox.Group{Tenant: req.Msg.TenantId, ID: req.Msg.GroupId})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.GetGroupResponse{
		Generation: g.Generation, MembershipVersion: g.Version, ConversationSeq: g.ConversationSeq,
		MemberCount: g.MemberCount, SlotHighWater: g.SlotHighWater, TargetShards: g.TargetShards, RenumberingDue: g.RenumberingDue,
		ClosedSinceMs: closedSince(g.Closing), ClosedUntilMs: closedUntil(g.Closing),
	}), nil
}

func membershipResponse(m conversation.MembershipResult, err error) (*connect.Response[lanewayv1.MembershipResponse], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.MembershipResponse{
		Generation: m.Generation, MembershipVersion: m.Version, ConversationSeq: m.ConversationSeq,
		MemberCount: m.MemberCount, Changed: m.Changed,
	}), nil
}
