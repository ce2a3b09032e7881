package localtemporal

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fakeTemporal answers what EnsureNamespace asks, with a server's delays: a new
// namespace, and a new attribute, are unknown for a call or two.
type fakeTemporal struct {
	workflowservice.UnimplementedWorkflowServiceServer
	operatorservice.UnimplementedOperatorServiceServer

	mu         sync.Mutex
	namespaces map[string]map[string]enumspb.IndexedValueType
	unknown    int // calls that a change stays unknown for
	changes    int
}

func newFake() *fakeTemporal {
	return &fakeTemporal{namespaces: map[string]map[string]enumspb.IndexedValueType{}}
}

// serve serves the fake until the listener is closed.
func (f *fakeTemporal) serve(l net.Listener) *grpc.Server {
	s := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(s, f)
	operatorservice.RegisterOperatorServiceServer(s, f)
	go func() { _ = s.Serve(l) }()
	return s
}

func (f *fakeTemporal) start(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := f.serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func (f *fakeTemporal) changed() {
	f.changes++
	f.unknown = 2
}

func (f *fakeTemporal) known() error {
	if f.unknown > 0 {
		f.unknown--
		return status.Error(codes.NotFound, "not known yet")
	}
	return nil
}

func (f *fakeTemporal) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (f *fakeTemporal) DescribeNamespace(_ context.Context, r *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.namespaces[r.GetNamespace()]; !ok {
		return nil, status.Error(codes.NotFound, "no such namespace")
	}
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

func (f *fakeTemporal) RegisterNamespace(_ context.Context, r *workflowservice.RegisterNamespaceRequest) (*workflowservice.RegisterNamespaceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GetWorkflowExecutionRetentionPeriod().AsDuration() != DefaultRetention {
		return nil, status.Error(codes.InvalidArgument, "retention")
	}
	f.namespaces[r.GetNamespace()] = map[string]enumspb.IndexedValueType{}
	f.changed()
	return &workflowservice.RegisterNamespaceResponse{}, nil
}

func (f *fakeTemporal) ListSearchAttributes(_ context.Context, r *operatorservice.ListSearchAttributesRequest) (*operatorservice.ListSearchAttributesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.known(); err != nil {
		return nil, err
	}
	return &operatorservice.ListSearchAttributesResponse{CustomAttributes: maps.Clone(f.namespaces[r.GetNamespace()])}, nil
}

func (f *fakeTemporal) AddSearchAttributes(_ context.Context, r *operatorservice.AddSearchAttributesRequest) (*operatorservice.AddSearchAttributesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(f.namespaces[r.GetNamespace()], r.GetSearchAttributes())
	f.changed()
	return &operatorservice.AddSearchAttributesResponse{}, nil
}

func (f *fakeTemporal) CountWorkflowExecutions(_ context.Context, r *workflowservice.CountWorkflowExecutionsRequest) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.known(); err != nil {
		return nil, err
	}
	for name := range f.namespaces[r.GetNamespace()] {
		if !strings.Contains(r.GetQuery(), name) {
			return nil, errors.New("the query doesn't ask for " + name)
		}
	}
	return &workflowservice.CountWorkflowExecutionsResponse{}, nil
}
