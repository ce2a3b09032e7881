package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one file under lua/.
type script struct{ name, source, sha string }

// newScript reads lua/<name>.lua, behind the files that it builds on. The files
// are part of the program: one that is missing is a bug.
func newScript(name string, preludes ...string) *script {
	s := &script{name: name}
	for _, file := range append(preludes, name) {
		b, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(fmt.Sprintf("redis: script %s: %v", name, err))
		}
		text := string(b)
		// What a script says of itself has to stand first.
		if strings.HasPrefix(text, "#!") {
			line, rest, _ := strings.Cut(text, "\n")
			s.source, text = line+"\n"+s.source, rest
		}
		s.source += text + "\n"
	}
	s.sha = sha(s.source)
	return s
}

func sha(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// call is one run of a script.
type call struct {
	script *script
	keys   []string
	args   []any
}

type result struct {
	val any
	err error
}

func (c *call) words(byText bool) []any {
	words := make([]any, 0, 3+len(c.keys)+len(c.args))
	if byText {
		words = append(words, "eval", c.script.source, len(c.keys))
	} else {
		words = append(words, "evalsha", c.script.sha, len(c.keys))
	}
	for _, k := range c.keys {
		words = append(words, k)
	}
	return append(words, c.args...)
}

// run sends all calls in one round trip and returns their results in order. A
// server that has forgotten a script gets its text again, with only those calls
// that did not run: the others of the pipeline have run, also those behind one
// that did not.
//
// A call whose reply was lost may have run. Scripts are idempotent, so that it
// can be sent again.
func (s *Store) run(ctx context.Context, calls []call) []result {
	return s.runOn(ctx, s.rdb, calls)
}

func (s *Store) runOn(ctx context.Context, c *goredis.Client, calls []call) []result {
	results := make([]result, len(calls))
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	for attempt := 0; len(todo) > 0; attempt++ {
		cmds := make([]*goredis.Cmd, len(todo))
		sent := map[*script]bool{}
		pipe := c.Pipeline()
		for n, i := range todo {
			one := &calls[i]
			// The text goes with the first call of each script, and from the third
			// attempt on, when scripts are flushed as fast as they come, with each.
			byText := attempt > 0 && !sent[one.script] || attempt > 1
			sent[one.script] = true
			cmds[n] = pipe.Do(ctx, one.words(byText)...)
		}
		_, _ = pipe.Exec(ctx) // each command has its error
		var again []int
		for n, i := range todo {
			v, err := cmds[n].Result()
			if goredis.HasErrorPrefix(err, "NOSCRIPT") {
				again = append(again, i)
				continue
			}
			results[i] = result{v, s.serverError(calls[i].script.name, err)}
		}
		todo = again
	}
	return results
}
