package config

import (
	"net/url"
	"path/filepath"
	"strings"
)

// Kinds of stores.
const (
	Pebble = "pebble"
	Redis  = "redis"
	Scylla = "scylla"
)

// kinds has the kind of a store for each scheme of its URL.
var kinds = map[string]string{"pebble": Pebble, "redis": Redis, "rediss": Redis, "cql": Scylla}

// Kind returns the kind of store that the URL names, or "".
func (s Store) Kind() string {
	scheme, _, _ := strings.Cut(s.URL, ":")
	return kinds[scheme]
}

// Shown is the URL with its secrets masked.
func (s Store) Shown() string { return mask(s.URL) }

// StoreDir returns the directory of the Pebble store.
func (c *Config) StoreDir() string {
	_, path, _ := strings.Cut(c.Store.URL, ":")
	if path == "" {
		return filepath.Join(c.DataDir, "store")
	}
	return path
}

// allowUnsafe is the variable that lets a node use a Redis that may lose or evict
// what it holds.
const allowUnsafe = EnvPrefix + "REDIS_ALLOW_UNSAFE_DEV"

// Shadow returns the settings of the shadow as those of a store of its own.
func (s Store) Shadow() Store { return Store{URL: s.ShadowURL, AllowUnsafe: s.AllowUnsafe} }

// checkStore looks at what can be told without a server.
func (c *Config) checkStore(bad func(key, fix, format string, args ...any)) {
	checkStoreURL("store.url", c.Store, bad)
	if c.Store.ShadowURL == "" {
		return
	}
	const key = "store.shadow_url"
	checkStoreURL(key, c.Store.Shadow(), bad)
	switch c.Store.ShadowURL {
	case c.Store.URL:
		bad(key, "name another store, or leave it empty", "it is the same as store.url")
	case Pebble + ":":
		bad(key, "use pebble:PATH", "a shadow on Pebble needs a directory of its own")
	}
	if c.Store.ShadowSample < 0 || c.Store.ShadowSample > 100 {
		bad("store.shadow_sample", "use 0 to 100", "%d is no share in percent", c.Store.ShadowSample)
	}
}

// checkStoreURL looks at one URL. The texts never quote it: it may hold a
// password.
func checkStoreURL(key string, s Store, bad func(key, fix, format string, args ...any)) {
	scheme, rest, found := strings.Cut(s.URL, ":")
	kind := s.Kind()
	if !found || kind == "" {
		if found && strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+.-") == "" {
			bad(key, "use pebble:, redis://, rediss:// or cql://", "there is no store of kind %q", scheme)
		} else {
			bad(key, "for example pebble: or redis://127.0.0.1:6379/0", "it is not the URL of a store")
		}
		return
	}
	if kind == Pebble {
		if strings.HasPrefix(rest, "//") || strings.Contains(rest, "?") {
			bad(key, "use pebble:PATH", "a pebble store has a path and nothing else")
		}
		return
	}
	fix := map[string]string{
		Redis:  "use redis://[user:password@]host:port/database, with rediss:// for TLS",
		Scylla: "use cql://[user:password@]host[:port][,host…]/keyspace",
	}[kind]
	u, err := url.Parse(oneHost(s.URL))
	switch {
	case err != nil:
		bad(key, fix+"; special characters in user and password are percent-encoded", "it is not a URL")
	case !strings.HasPrefix(rest, "//") || u.Hostname() == "":
		bad(key, fix, "it names no host")
	case maskedPassword(u):
		bad(key, "put the password back, or set "+Variable(key), "its password is what `laneway config` prints instead of one")
	case kind == Scylla && strings.Trim(u.Path, "/") == "":
		bad(key, fix, "it names no keyspace")
	}
}

func maskedPassword(u *url.URL) bool {
	p, _ := u.User.Password()
	return p == masked
}

// oneHost leaves one of the hosts of a URL: package url knows no lists.
func oneHost(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	from := strings.LastIndex(rest[:end], "@") + 1
	hosts := rest[from:end]
	first, _, _ := strings.Cut(hosts, ",")
	return scheme + "://" + rest[:from] + first + rest[end:]
}
