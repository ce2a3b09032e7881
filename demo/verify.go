package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

// Mailboxes is what the mailboxes hold, with the oracle's fields.
type Mailboxes struct {
	Users   int            `json:"users"`
	Entries int            `json:"entries"`
	ByType  map[string]int `json:"entries_by_type"`
	SHA256  string         `json:"sha256"`
}

// settle is how long verification waits for a mailbox that gets nothing new.
const settle = 30 * time.Second

// verify pulls every mailbox of the trace and compares it with the oracle. The
// error names the first user, in name order, and the first entry that differ.
func verify(ctx context.Context, cl *client.Client, tenant string, t *Trace, progress func(users, entries int)) (*Mailboxes, error) {
	users := slices.Sorted(maps.Keys(t.Expected.Lines))
	type result struct {
		sum   string
		lines int
		err   error
	}
	results := make([]result, len(users))
	m := &Mailboxes{Users: len(users), ByType: map[string]int{}}
	var mu sync.Mutex
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, u := range users {
		g.Go(func() error {
			lines, err := pullAll(ctx, cl, tenant, u, len(t.Expected.Lines[u]))
			if err != nil {
				return fmt.Errorf("pull the mailbox of %s: %w", u, err)
			}
			sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
			results[i] = result{hex.EncodeToString(sum[:]), len(lines), differ(u, lines, t.Expected.Lines[u])}
			mu.Lock()
			defer mu.Unlock()
			for _, l := range lines {
				kind, _, _ := strings.Cut(l, " ")
				m.ByType[kind]++
			}
			m.Entries += len(lines)
			done++
			progress(done, m.Entries)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := sha256.New()
	for i, r := range results {
		if r.err != nil {
			return m, r.err
		}
		fmt.Fprintf(all, "%s %d %s\n", users[i], r.lines, r.sum)
	}
	m.SHA256 = hex.EncodeToString(all.Sum(nil))
	return m, nil
}

// pullAll pulls a mailbox until it holds as many entries as expected and is
// caught up, or until nothing more comes.
func pullAll(ctx context.Context, cl *client.Client, tenant, user string, want int) ([]string, error) {
	lines := make([]string, 0, want)
	cursor := ""
	for last := time.Now(); ; {
		p, err := cl.Pull(ctx, &lanewayv1.PullRequest{TenantId: tenant, UserId: user, Cursor: cursor, MaxItems: 5000})
		if err != nil {
			return nil, err
		}
		for _, e := range p.Entries {
			l, err := line(e)
			if err != nil {
				return nil, err
			}
			lines = append(lines, l)
		}
		if len(p.Entries) > 0 {
			last = time.Now()
		}
		cursor = p.Cursor
		if p.CaughtUp {
			if len(lines) >= want || time.Since(last) > settle {
				return lines, nil
			}
			wait, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			<-wait.Done()
			cancel()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
}

// line is an entry as the oracle writes it.
func line(e *lanewayv1.Entry) (string, error) {
	kind := strings.TrimPrefix(e.Kind.String(), "EVENT_KIND_")
	if e.Kind != logv1.EventKind_EVENT_KIND_MEMBERSHIP {
		return kind + " " + e.MessageId, nil
	}
	var p logv1.MembershipPayload
	if err := proto.Unmarshal(e.Payload, &p); err != nil {
		return "", fmt.Errorf("payload of a MEMBERSHIP entry: %w", err)
	}
	return kind + " " + p.FirstSubject, nil
}

func differ(user string, got, want []string) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("mailbox of %s: entry %d is missing: want %q (it has %d of %d entries)", user, i+1, want[i], len(got), len(want))
		case i >= len(want):
			return fmt.Errorf("mailbox of %s: entry %d is one too many: %q (it has %d, want %d entries)", user, i+1, got[i], len(got), len(want))
		case got[i] != want[i]:
			return fmt.Errorf("mailbox of %s: entry %d is %q, want %q", user, i+1, got[i], want[i])
		}
	}
	return nil
}
