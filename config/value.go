package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// coerce turns a value of YAML, the environment or a flag into the type of the
// setting's default.
func coerce(f field, v any) (any, error) {
	text, isText := v.(string)
	text = strings.TrimSpace(text)
	switch f.def.(type) {
	case string:
		switch v := v.(type) {
		case string:
			return text, nil
		case int, int64, float64, bool:
			return fmt.Sprint(v), nil // a name that YAML took for something else
		}
		return nil, fmt.Errorf("want text, got %s", shown(v))
	case int:
		if n, ok := v.(int); ok {
			return n, nil
		}
		if isText {
			if n, err := strconv.Atoi(text); err == nil {
				return n, nil
			}
		}
		return nil, fmt.Errorf("want a whole number, got %s", shown(v))
	case bool:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		if isText {
			if b, err := strconv.ParseBool(text); err == nil {
				return b, nil
			}
		}
		return nil, fmt.Errorf("want true or false, got %s", shown(v))
	case time.Duration:
		if isText {
			if d, err := time.ParseDuration(text); err == nil {
				return d, nil
			}
		}
		return nil, fmt.Errorf("want a time with its unit (500ms, 30s, 2h), got %s", shown(v))
	case []string:
		switch v := v.(type) {
		case string:
			return split(text), nil
		case []any:
			var out []string
			for _, x := range v {
				s, ok := x.(string)
				if !ok {
					return nil, fmt.Errorf("want a list of texts, got an item %s", shown(x))
				}
				out = append(out, s)
			}
			return out, nil
		}
		return nil, fmt.Errorf("want a list, or texts separated by commas, got %s", shown(v))
	}
	panic("config: setting " + f.key + " has a default of an unknown type") // a defect of the list
}

func split(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// shown is a value as an error may repeat it: short, and without secrets.
func shown(v any) string {
	s := fmt.Sprintf("%q", mask(fmt.Sprint(v)))
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return s
}

// display is a value as a user would write it.
func display(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return `""`
		}
		return v
	case time.Duration:
		return v.String()
	case []string:
		if len(v) == 0 {
			return "[]"
		}
		return strings.Join(v, ",")
	}
	return fmt.Sprint(v)
}

// Setting is one effective setting for listings.
type Setting struct {
	Key      string `json:"key"`
	Value    any    `json:"value"`
	Source   string `json:"source"`
	Variable string `json:"variable"`
	Help     string `json:"help"`
}

// Text is the value as a user would write it.
func (s Setting) Text() string { return display(s.Value) }

// Settings returns the effective settings in order, with secrets masked.
func (l *Loaded) Settings() []Setting {
	out := make([]Setting, len(fields))
	for i, f := range fields {
		v := l.values[f.key]
		switch x := v.(type) {
		case string:
			v = mask(x)
		case time.Duration:
			v = x.String()
		case []string:
			masked := make([]string, len(x))
			for i, s := range x {
				masked[i] = mask(s)
			}
			v = masked
		}
		out[i] = Setting{f.key, v, l.sources[f.key], Variable(f.key), f.help}
	}
	return out
}

const masked = "xxxxx"

// mask hides what may be a secret in a value: the password in a URL, and its
// query's values under names that say so.
func mask(s string) string {
	scheme, rest, isURL := strings.Cut(s, "://")
	if _, err := url.Parse(oneHost(s)); err != nil || !isURL || scheme == "" {
		// What does not parse, or is no URL, may still hold a password before an @.
		if at := strings.LastIndex(s, "@"); at > 0 {
			return masked + s[at:]
		}
		return s
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if user, _, has := strings.Cut(authority[:at], ":"); has {
			authority = user + ":" + masked + authority[at:]
		}
	}
	out := scheme + "://" + authority
	if hasPath {
		out += "/" + path
	}
	if hasQuery {
		out += "?" + maskQuery(query)
	}
	if hasFragment {
		out += "#" + fragment
	}
	return out
}

func maskQuery(query string) string {
	params := strings.Split(query, "&")
	for i, p := range params {
		name, value, has := strings.Cut(p, "=")
		lower := strings.ToLower(name)
		if plain, err := url.QueryUnescape(lower); err == nil {
			lower = plain
		}
		for _, secret := range []string{"pass", "secret", "token", "key"} {
			// The name of a key in AWS KMS is none.
			if has && strings.Contains(lower, secret) && lower != "kmskeyid" {
				params[i] = name + "=" + masked
			}
		}
		if has && !strings.HasSuffix(params[i], masked) {
			params[i] = name + "=" + maskEmbedded(value)
		}
	}
	return strings.Join(params, "&")
}

// YAML returns the effective settings as a file that Load accepts, with secrets
// masked and each setting's help and source as a comment.
func (l *Loaded) YAML() string {
	var b strings.Builder
	section := ""
	for _, s := range l.Settings() {
		name, indent := s.Key, ""
		if sec, rest, ok := strings.Cut(s.Key, "."); ok {
			if sec != section {
				fmt.Fprintf(&b, "%s:\n", sec)
				section = sec
			}
			name, indent = rest, "  "
		}
		text, err := json.Marshal(s.Value) // JSON is YAML
		if err != nil {
			panic("config: a setting that is not JSON: " + s.Key) // unreachable: plain types
		}
		fmt.Fprintf(&b, "%s# %s [%s]\n%s%s: %s\n", indent, s.Help, s.Source, indent, name, text)
	}
	return b.String()
}
