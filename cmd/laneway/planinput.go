package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/laneway/laneway/capacity"
)

const (
	// maxPlanFile bounds what is read of a file, or of a node.
	maxPlanFile = 16 << 20
	scrapeTime  = 10 * time.Second
)

// readLoad reads a load; - is standard input.
func readLoad(stdin io.Reader, file string) (*capacity.Load, error) {
	var l capacity.Load
	if err := readYAML(stdin, file, &l); err != nil {
		return nil, err
	}
	if err := l.Check(); err != nil {
		return nil, inputf("%s: %w", file, err)
	}
	l = l.WithDefaults()
	return &l, nil
}

// readYAML reads a file into v, in which every key has to be known.
func readYAML(stdin io.Reader, file string, v any) error {
	r := stdin
	if file != "-" || stdin == nil {
		f, err := os.Open(file)
		if err != nil {
			return inputError{err}
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxPlanFile))
	if err != nil {
		return inputError{err}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		if bad := unknownKeys(err, v); bad != nil {
			err = bad
		}
		return inputf("%s: %w", file, err)
	}
	return nil
}

// unknownKey is how the library says that a key is none of a type's.
var unknownKey = regexp.MustCompile(`^(line \d+): field (.+) not found in type (\S+)$`)

// unknownKeys says which keys there are, for an error about unknown keys of v; nil
// for another error.
func unknownKeys(err error, v any) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return nil
	}
	keys := map[string][]string{}
	yamlKeys(reflect.TypeOf(v), keys)
	for _, text := range wrong.Errors {
		if m := unknownKey.FindStringSubmatch(text); m != nil && keys[m[3]] != nil {
			return fmt.Errorf("%s: unknown key %s: use %s", m[1], printable(m[2]), strings.Join(keys[m[3]], ", "))
		}
	}
	return nil
}

// yamlKeys collects the keys of a type and of those in it, by the type's name.
func yamlKeys(t reflect.Type, keys map[string][]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		yamlKeys(t.Elem(), keys)
	case reflect.Struct:
		for f := range t.NumField() {
			if key := t.Field(f).Tag.Get("yaml"); key != "" {
				keys[t.String()] = append(keys[t.String()], key)
			}
			yamlKeys(t.Field(f).Type, keys)
		}
	}
}

// observe looks at running nodes twice.
func (a *app) observe(ctx context.Context, from []string, over time.Duration) (capacity.Observed, error) {
	first, began, err := scrape(ctx, from)
	if err != nil {
		return capacity.Observed{}, err
	}
	fmt.Fprintf(a.err, "looking at %d nodes for %s\n", len(from), over)
	t := time.NewTimer(over)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return capacity.Observed{}, ctx.Err()
	case <-t.C:
	}
	last, ended, err := scrape(ctx, from)
	if err != nil {
		return capacity.Observed{}, err
	}
	return capacity.Between(first, last, ended.Sub(began))
}

// scrape adds up the counters of all nodes, and says when.
func scrape(ctx context.Context, from []string) (sum capacity.Sample, at time.Time, err error) {
	for _, url := range from {
		if err := scrapeOne(ctx, url, &sum); err != nil {
			return sum, at, fmt.Errorf("--from %s: %w; give the address of a node with /metrics behind it", url, err)
		}
	}
	return sum, time.Now(), nil
}

func scrapeOne(ctx context.Context, url string, sum *capacity.Sample) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return errors.New("it is not an http:// or https:// URL")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", res.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(res.Body, maxPlanFile))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoMetrics, err)
	}
	if families["laneway_commits_total"] == nil || families["laneway_entries_appended_total"] == nil {
		return errNoMetrics
	}
	sum.Commits += total(families["laneway_commits_total"], "outcome", "ok")
	sum.Hot += total(families["laneway_entries_appended_total"], "route", "hot")
	sum.Workflow += total(families["laneway_entries_appended_total"], "route", "workflow")
	sum.CPUSeconds += total(families["process_cpu_seconds_total"], "", "")
	sum.Shards += int(total(families["laneway_shard_owned"], "", ""))
	return nil
}

// total adds up the series of a family that have a label's value; all of them
// without a label.
func total(f *dto.MetricFamily, label, value string) (sum float64) {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() != value {
				m = nil
				break
			}
		}
		if m != nil {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
