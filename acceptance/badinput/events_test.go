package badinput_test

import (
	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

// mention is a message with a mention of users.
func mention(users ...string) []*logv1.Event {
	return []*logv1.Event{
		{Kind: logv1.EventKind_EVENT_KIND_MESSAGE},
		{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: users},
	}
}
