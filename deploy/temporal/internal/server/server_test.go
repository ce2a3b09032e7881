package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestDynamicValue(t *testing.T) {
	for in, want := range map[string]any{
		`5`:              5,
		`0.5`:            0.5,
		`"2s"`:           "2s",
		`{"a":[1,true]}`: map[string]any{"a": []any{1, true}},
	} {
		got, err := DynamicValue(in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, %v, want %#v", in, got, err, want)
		}
	}
	if _, err := DynamicValue(`{`); err == nil {
		t.Error("broken JSON was accepted")
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := Options{IP: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
	if err := o.choosePorts(); !errors.Is(err, ErrPortInUse) {
		t.Fatalf("got %v", err)
	}
}

func TestChoosePorts(t *testing.T) {
	o := Options{IP: "127.0.0.1", UIPort: NoUI}
	if err := o.choosePorts(); err != nil {
		t.Fatal(err)
	}
	if o.Port == 0 || o.UIPort != NoUI || o.MetricsPort != 0 {
		t.Errorf("got %+v", o)
	}
}

// TestServer runs the service in memory, and then on a file twice: the second
// run finds what the first left, with one more search attribute.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: not in -short")
	}
	db := filepath.Join(t.TempDir(), "data", "temporal.db")
	one := map[string]enumspb.IndexedValueType{"LanewayTenant": enumspb.INDEXED_VALUE_TYPE_KEYWORD}
	two := map[string]enumspb.IndexedValueType{"LanewayTenant": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "LanewayShard": enumspb.INDEXED_VALUE_TYPE_INT}
	for _, run := range []struct {
		name  string
		db    string
		attrs map[string]enumspb.IndexedValueType
		ui    int
	}{{"memory", "", two, NoUI}, {"new file", db, one, 0}, {"old file", db, two, 0}} {
		t.Run(run.name, func(t *testing.T) {
			s, err := Start(t.Context(), Options{
				IP: "127.0.0.1", UIPort: run.ui, DB: run.db, Shards: 4, Namespaces: []string{"laneway"},
				Retention: 24 * time.Hour, SearchAttributes: run.attrs,
				Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			checkNamespace(t, s.Address, run.attrs)
			if run.ui == NoUI {
				return
			}
			resp, err := http.Get(s.UIURL + "/namespaces/laneway/workflows")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("web ui: %s", resp.Status)
			}
		})
	}
}

func checkNamespace(t *testing.T, address string, want map[string]enumspb.IndexedValueType) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	d, err := workflowservice.NewWorkflowServiceClient(conn).DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: "laneway"})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(); got != 24*time.Hour {
		t.Errorf("retention %v", got)
	}
	l, err := operatorservice.NewOperatorServiceClient(conn).ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: "laneway"})
	if err != nil {
		t.Fatal(err)
	}
	for name, typ := range want {
		if l.GetCustomAttributes()[name] != typ {
			t.Errorf("%s is %v, want %v", name, l.GetCustomAttributes()[name], typ)
		}
	}
}
