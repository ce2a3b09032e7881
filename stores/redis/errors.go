package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

// reasons are the first words behind LANEWAY in the error replies of our
// scripts. A CORRUPT reply goes on with a stable word that names what was found.
var reasons = map[string]error{
	"CORRUPT":       mailbox.ErrCorrupt,
	"NOTOWNER":      mailbox.ErrNotOwner,
	"CONFLICT":      mailbox.ErrWatermarkConflict,
	"LEASE":         mailbox.ErrLeaseHeld,
	"UNKNOWN_CHUNK": mailbox.ErrUnknownChunk,
	"MANIFEST":      mailbox.ErrManifestMismatch,
	"KNOWN":         mailbox.ErrDispatchKnown,
	"HEAD":          mailbox.ErrHeadMoved,
	"RANGE":         mailbox.ErrSeqRange,
	"NOTFOUND":      mailbox.ErrNotFound,
	"DEPLOYMENT":    mailbox.ErrDeploymentMismatch,
	"ABORTED":       errAborted,
}

// troubles are error replies of the server itself that pass by when somebody
// acts: none of them ends the store.
var troubles = []struct{ prefix, text string }{
	{"OOM", "redis is out of memory (maxmemory with noeviction; nothing of the call was written): raise maxmemory or shorten the retention"},
	{"LOADING", "redis is loading its data: try again"},
	{"READONLY", "redis is a read-only replica: connect to the master"},
	{"MASTERDOWN", "redis is a replica without its master: connect to the master"},
	{"MISCONF", "redis refuses writes because it could not save to disk: free or repair its disk"},
	{"BUSY", "redis is busy with a script: find who runs it (SCRIPT KILL ends one that has written nothing)"},
	{"NOPERM", "redis denies this user a command or key that laneway needs: extend the user's ACL"},
	{"NOAUTH", "redis asks for a password: put it into the store's URL"},
	{"WRONGPASS", "redis refuses the user name or password: correct the store's URL"},
	{"ERR DB index is out of range", "redis has no database of that number: correct the path of the store's URL"},
	{"ERR max number of clients", "redis has no connection left: raise its maxclients or lower the pool sizes"},
}

// serverError makes of an error of a command or script the store's error.
func (s *Store) serverError(what string, err error) error {
	if err == nil || errors.Is(err, goredis.Nil) {
		return nil
	}
	if failed := s.Healthy(); failed != nil {
		return failed
	}
	var reply goredis.Error
	if errors.As(err, &reply) {
		return fmt.Errorf("redis: %s: %w", what, replyError(reply.Error()))
	}
	return fmt.Errorf("redis: %s: %w", what, connectionError(err))
}

// replyError reads an error reply.
func replyError(text string) error {
	text, _, _ = strings.Cut(text, " script: ") // where in which script: nobody's business
	if rest, ok := strings.CutPrefix(strings.TrimPrefix(text, "ERR "), "LANEWAY "); ok {
		word, detail, _ := strings.Cut(rest, " ")
		if sentinel := reasons[word]; sentinel != nil {
			if detail == "" {
				return sentinel
			}
			return fmt.Errorf("%w: %s", sentinel, detail)
		}
		return errors.New(rest)
	}
	if strings.HasPrefix(text, "WRONGTYPE") {
		return fmt.Errorf("%w: WRONG_TYPE: a key holds another type than laneway writes", mailbox.ErrCorrupt)
	}
	for _, t := range troubles {
		if strings.HasPrefix(text, t.prefix) {
			return fmt.Errorf("%w: %s: %w", mailbox.ErrStoreUnavailable, t.text, errors.New(text))
		}
	}
	return errors.New(text)
}

// connectionError says of a failed connection what to do about it. What it wraps
// holds addresses, never credentials.
func connectionError(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("redis did not answer in time; what was sent may have been applied, and can be sent again: %w", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: redis did not answer in time; what was sent may have been applied, and can be sent again: %w", mailbox.ErrStoreUnavailable, err)
	}
	return fmt.Errorf("%w: no connection to redis, or it was lost; what was sent may have been applied, and can be sent again: %w", mailbox.ErrStoreUnavailable, err)
}
