package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// EnvPrefix begins every environment variable of Laneway.
const EnvPrefix = "LANEWAY_"

// Sources of the settings.
const (
	fromDefault = "default"
	fromFile    = "file"
	fromEnv     = "environment"
	fromFlag    = "flag"
)

// Input is where settings are read from.
type Input struct {
	File    string         // YAML; empty: none
	Environ []string       // as of os.Environ
	Flags   *pflag.FlagSet // parsed, with the flags of AddFlags; nil: none
}

// Loaded is the effective settings and where each came from.
type Loaded struct {
	Config
	sources map[string]string // by key
	values  map[string]any    // by key, coerced
}

// Load reads, merges and validates. The error lists everything that is wrong,
// not only the first thing.
func Load(in Input) (*Loaded, error) {
	l := &Loaded{sources: make(map[string]string), values: make(map[string]any)}
	for _, f := range fields {
		l.values[f.key], l.sources[f.key] = f.def, fromDefault
	}
	var problems []Problem
	for _, layer := range []struct {
		source string
		read   func(*koanf.Koanf) error
	}{
		{fromFile, func(k *koanf.Koanf) error {
			if in.File == "" {
				return nil
			}
			return k.Load(file.Provider(in.File), yaml.Parser())
		}},
		{fromEnv, func(k *koanf.Koanf) error {
			return k.Load(env.Provider(".", env.Opt{
				Prefix: EnvPrefix, EnvironFunc: func() []string { return in.Environ }, TransformFunc: fromVariable,
			}), nil)
		}},
		{fromFlag, func(k *koanf.Koanf) error {
			if in.Flags == nil {
				return nil
			}
			return k.Load(posflag.ProviderWithFlag(in.Flags, ".", k, fromFlagValue), nil)
		}},
	} {
		k := koanf.New(".")
		if err := layer.read(k); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("configuration file %s does not exist; name an existing one with --config or LANEWAY_CONFIG", in.File)
			}
			return nil, fmt.Errorf("configuration file %s: %w", in.File, err)
		}
		problems = append(problems, l.merge(layer.source, k.All())...)
	}
	if len(problems) > 0 {
		return nil, &Error{problems}
	}
	if err := l.unmarshal(); err != nil {
		return nil, err
	}
	l.Store.AllowUnsafe = slices.Contains(in.Environ, allowUnsafe+"=1")
	if l.Node == "" {
		if l.Node, _ = os.Hostname(); l.Node == "" {
			l.Node = "laneway"
		}
		l.values["node"] = l.Node
	}
	if problems := l.check(); len(problems) > 0 {
		for i := range problems {
			problems[i].Source = l.sources[problems[i].Key]
		}
		return nil, &Error{problems}
	}
	return l, nil
}

// merge lays one source's values over what is there.
func (l *Loaded) merge(source string, values map[string]any) []Problem {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var problems []Problem
	for _, key := range keys {
		if v := values[key]; v == nil || reflect.DeepEqual(v, map[string]any{}) {
			continue // "key:" without a value leaves what is there
		}
		f, ok := find(key)
		if !ok {
			problems = append(problems, Problem{Key: key, Source: source, Message: "no such setting", Fix: suggest(key)})
			continue
		}
		v, err := coerce(f, values[key])
		if err != nil {
			problems = append(problems, Problem{Key: key, Source: source, Message: err.Error(), Fix: "for example " + display(f.def)})
			continue
		}
		l.values[key], l.sources[key] = v, source
	}
	return problems
}

func (l *Loaded) unmarshal() error {
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(l.values, "."), nil); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if err := k.Unmarshal("", &l.Config); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

// Variable returns the environment variable of a key: log.brokers is
// LANEWAY_LOG_BROKERS.
func Variable(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// notSetting reports whether a variable with the prefix is no setting: the CLI
// reads it, or a Kubernetes service named laneway puts it into every pod.
func notSetting(name string) bool {
	switch name {
	case "LANEWAY_CONFIG", "LANEWAY_SERVER", "LANEWAY_TENANT", "LANEWAY_CACHE", allowUnsafe, "LANEWAY_PORT":
		return true
	}
	for _, p := range []string{"LANEWAY_PORT_", "LANEWAY_SERVICE_", "LANEWAY_TEST_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func fromVariable(name, value string) (string, any) {
	if notSetting(name) {
		return "", nil
	}
	for _, f := range fields {
		if Variable(f.key) == name {
			return f.key, value
		}
	}
	return name, value // unknown: merge reports it under its own name
}

// flagName returns the flag of a key: log.brokers is --log-brokers.
func flagName(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// AddFlags adds a flag for every setting. Defaults are not repeated in them: a
// flag that is not given changes nothing.
func AddFlags(fs *pflag.FlagSet) {
	for _, f := range fields {
		help := f.help
		if d := display(f.def); d != `""` && d != "[]" {
			help += " (default " + d + ")"
		}
		if b, ok := f.def.(bool); ok {
			fs.Bool(flagName(f.key), b, f.help)
			continue
		}
		fs.String(flagName(f.key), "", help)
	}
}

func fromFlagValue(f *pflag.Flag) (string, any) {
	if !f.Changed {
		return "", nil
	}
	for _, known := range fields {
		if flagName(known.key) == f.Name {
			return known.key, f.Value.String()
		}
	}
	return "", nil // another flag of the command
}

// suggest names the setting that was probably meant.
func suggest(key string) string {
	name := strings.ToLower(strings.TrimPrefix(key, EnvPrefix))
	plain := strings.NewReplacer(".", "", "_", "", "-", "").Replace(name)
	for _, f := range fields {
		known := strings.NewReplacer(".", "", "_", "").Replace(f.key)
		_, last, _ := strings.Cut(f.key, ".")
		if known == plain || (last != "" && last == name) || (len(plain) > 3 && strings.HasPrefix(known, plain)) {
			if strings.HasPrefix(key, EnvPrefix) {
				return "did you mean " + Variable(f.key) + "?"
			}
			return "did you mean " + f.key + "?"
		}
	}
	return "remove it; `laneway config` lists every setting"
}
