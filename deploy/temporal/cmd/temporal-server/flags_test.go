package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

func TestParse(t *testing.T) {
	c, err := parse([]string{
		"-port", "0", "-ui-port", "-1", "-namespace", "laneway", "-parent-pid", "7",
		"-search-attribute", "LanewayTenant=Keyword", "-search-attribute", "LanewayShard=Int",
		"-dynamic-config", "limit.x=5",
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	o := c.options
	if o.Port != 0 || o.UIPort != -1 || o.IP != "127.0.0.1" || o.DB != "" || c.parent != 7 {
		t.Errorf("got %+v", c)
	}
	if len(o.Namespaces) != 1 || o.Namespaces[0] != "laneway" {
		t.Errorf("namespaces %v", o.Namespaces)
	}
	if o.SearchAttributes["LanewayTenant"] != enumspb.INDEXED_VALUE_TYPE_KEYWORD || o.SearchAttributes["LanewayShard"] != enumspb.INDEXED_VALUE_TYPE_INT {
		t.Errorf("search attributes %v", o.SearchAttributes)
	}
	if o.DynamicConfig["limit.x"] != 5 {
		t.Errorf("dynamic config %v", o.DynamicConfig)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-search-attribute", "LanewayTenant"},
		{"-search-attribute", "LanewayTenant=Colour"},
		{"-dynamic-config", "limit.x={"},
		{"-log-level", "loud"},
		{"start"},
	} {
		if _, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(out.String(), "-parent-pid") {
		t.Errorf("help is\n%s", out.String())
	}
}

func TestWaitForParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died := time.Now().Add(10 * time.Second)
		waitForParent(t.Context(), 7, func() int {
			if time.Now().Before(died) {
				return 7
			}
			return 1
		})
		if late := time.Since(died); late < 0 || late > parentInterval {
			t.Errorf("returned %v after the parent's death", late)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		waitForParent(ctx, 7, func() int { return 7 })
	})
}
