package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

// rewritePause is between two looks at a rewrite of the append-only file, and
// rewriteTold how often it is logged.
const (
	rewritePause = 20 * time.Millisecond
	rewriteTold  = 10 * time.Second
)

// settle makes sure that what a script did half comes back never.
//
// A script's writes are one MULTI in the append-only file. When a crash cuts the
// file within one of its commands, Redis takes back that command alone: what is
// before it in the MULTI stays in the file, unexecuted in this run, and is
// executed by the next one, behind whatever EXEC then follows in the file. So the
// first thing that is done with a new run of a server, before anything is written
// in it, is to have its file made anew of what it holds. Once in a run is enough,
// and none if the file was empty: a key names the run that is settled.
func (s *Store) settle(ctx context.Context) error {
	if s.opts.AllowUnsafe {
		return nil // it may have no such file
	}
	run, err := s.urgent.Get(ctx, s.settledKey()).Result()
	switch {
	case err == nil && run == s.Incarnation():
		return nil
	case err != nil && !errors.Is(err, goredis.Nil):
		return s.serverError("settled run", err)
	}
	if err := s.rewrite(ctx); err != nil {
		return err
	}
	return s.serverError("settled run", s.urgent.Set(ctx, s.settledKey(), s.Incarnation(), 0).Err())
}

// rewrite returns when the server's append-only file is of this run alone.
func (s *Store) rewrite(ctx context.Context) error {
	began, told, asked := time.Now(), time.Now(), false
	for {
		text, err := s.urgent.Info(ctx).Result()
		if err != nil {
			return s.serverError("info", err)
		}
		r := server{info: parseInfo(text)}
		switch {
		case r.first("aof_rewrite_in_progress") == "1" || r.first("aof_rewrite_scheduled") == "1":
			if time.Since(told) > rewriteTold {
				told = time.Now()
				s.opts.Logger.Info("redis was restarted and rewrites its append-only file; nothing is written before that is done", "since", time.Since(began).Round(time.Second))
			}
		case r.first("aof_last_bgrewrite_status") == "ok" && (asked || r.rewritten()):
			return nil
		case asked:
			return fmt.Errorf("%w: redis could not rewrite its append-only file, and nothing is written before it has: its log says why (a full disk, or too little memory for a fork)", mailbox.ErrStoreUnavailable)
		default:
			// One that has begun meanwhile does as well.
			err := s.urgent.BgRewriteAOF(ctx).Err()
			switch {
			case err == nil, goredis.HasErrorPrefix(err, "ERR") && strings.Contains(err.Error(), "in progress"):
			case isReply(err):
				return unsafeServer("BGREWRITEAOF", "refused ("+err.Error()+")", "after a restart the append-only file has to be made anew before it is relied on: let this user run BGREWRITEAOF")
			default:
				return s.serverError("bgrewriteaof", err)
			}
			asked = true
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rewritePause):
		}
	}
}

// rewritten reports whether the append-only file is of this run alone.
func (r *server) rewritten() bool {
	return r.first("aof_current_size") == "0" || r.first("aof_rewrites") != "" && r.first("aof_rewrites") != "0"
}
