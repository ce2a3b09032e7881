package scylla

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
)

// A setting is a row of the deployment that compare-and-sets move.
const (
	deploymentSetting  = "deployment"
	commitStateSetting = "commit_state"
)

const (
	selectSetting   = `SELECT revision, body FROM settings WHERE name = ?`
	selectSettingBy = `SELECT revision, writer FROM settings WHERE name = ?`
	insertSetting   = `INSERT INTO settings (name, revision, writer, body) VALUES (?, ?, ?, ?) IF NOT EXISTS`
	updateSetting   = `UPDATE settings SET revision = ?, writer = ?, body = ? WHERE name = ? IF revision = ?`
)

// readSetting reads a setting at serial consistency; revision 0 for none.
func (s *Store) readSetting(ctx context.Context, name string) (body []byte, revision int64, err error) {
	q := s.readSerial(ctx, selectSetting, name)
	defer q.Release()
	err = one(q, &revision, &body)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.wrap("read the setting "+name, err)
	}
	return body, revision, nil
}

// moveSetting writes a setting as revision+1 if the stored revision is the given
// one.
func (s *Store) moveSetting(ctx context.Context, name string, revision int64, body []byte) (applied bool, err error) {
	c := &compareAndSet{what: "write the setting " + name, revision: revision, writer: newWriterToken()}
	c.read = func(ctx context.Context) (int64, []byte, error) {
		return s.readRevision(ctx, selectSettingBy, name)
	}
	if revision == 0 {
		c.stmt = insertSetting
		c.values = []any{name, int64(1), c.writer[:], body}
	} else {
		c.stmt = updateSetting
		c.values = []any{revision + 1, c.writer[:], body, name, revision}
	}
	return s.compareAndSet(ctx, c)
}

// storedRevision turns a caller's revision into the column's. A row never has
// one beyond it.
func storedRevision(revision uint64) (int64, error) {
	if revision >= 1<<62 {
		return 0, mailbox.ErrHeadMoved
	}
	return int64(revision), nil
}
