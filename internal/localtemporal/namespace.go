package localtemporal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// DefaultRetention is how long a closed workflow is kept in a namespace that
	// EnsureNamespace makes.
	DefaultRetention = 72 * time.Hour

	// visibleTimeout is how long a server may take to know of a namespace and
	// attributes that were just made: its caches refresh every few seconds.
	visibleTimeout = time.Minute
	retryInterval  = 100 * time.Millisecond
)

// SearchAttributes are the search attributes that Laneway's workflows set
// (design 7, "For the eyes"), with their types.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		"LanewayTenant":   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"LanewayGroup":    enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"LanewayDispatch": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"LanewayState":    enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"LanewaySeq":      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"LanewayShard":    enumspb.INDEXED_VALUE_TYPE_INT,
		"LanewayLane":     enumspb.INDEXED_VALUE_TYPE_INT,
	}
}

// EnsureNamespace registers the namespace and adds the search attributes where
// they are missing, and returns once workflows can use them. It changes nothing
// that exists: an attribute of another type is an error. Repeating it is safe.
func EnsureNamespace(ctx context.Context, conn grpc.ClientConnInterface, namespace string, retention time.Duration) error {
	workflows, operator := workflowservice.NewWorkflowServiceClient(conn), operatorservice.NewOperatorServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	if err := register(ctx, workflows, namespace, retention); err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	if err := addAttributes(ctx, operator, namespace); err != nil {
		return fmt.Errorf("search attributes of namespace %s: %w", namespace, err)
	}
	// A query that names each attribute is refused until the server knows them.
	query := attributesQuery()
	err := retry(ctx, func() error {
		_, err := workflows.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query})
		return err
	}, codes.NotFound, codes.InvalidArgument, codes.Unavailable, codes.ResourceExhausted)
	if err != nil {
		return fmt.Errorf("namespace %s: its search attributes can't be used yet: %w", namespace, err)
	}
	return nil
}

func register(ctx context.Context, workflows workflowservice.WorkflowServiceClient, namespace string, retention time.Duration) error {
	_, err := workflows.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if status.Code(err) != codes.NotFound {
		return err
	}
	_, err = workflows.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        namespace,
		Description:                      "Laneway dispatches",
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

func addAttributes(ctx context.Context, operator operatorservice.OperatorServiceClient, namespace string) error {
	var have *operatorservice.ListSearchAttributesResponse
	// A namespace that was just registered isn't found for some seconds.
	err := retry(ctx, func() (err error) {
		have, err = operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
		return err
	}, codes.NotFound)
	if err != nil {
		return err
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, want := range SearchAttributes() {
		switch got, ok := have.GetCustomAttributes()[name]; {
		case !ok:
			missing[name] = want
		case got != want:
			return fmt.Errorf("%s is of type %v, Laneway needs %v: use a namespace of its own", name, got, want)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return retry(ctx, func() error {
		_, err := operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
		if status.Code(err) == codes.AlreadyExists {
			return nil
		}
		return err
	}, codes.NotFound, codes.Unavailable)
}

// attributesQuery names each search attribute once.
func attributesQuery() string {
	attrs := SearchAttributes()
	var terms []string
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		if attrs[name] == enumspb.INDEXED_VALUE_TYPE_INT {
			terms = append(terms, name+" = 0")
		} else {
			terms = append(terms, name+" = '-'")
		}
	}
	return strings.Join(terms, " AND ")
}

// waitForAnswer waits until the server answers anything at all.
func waitForAnswer(ctx context.Context, conn grpc.ClientConnInterface) error {
	workflows := workflowservice.NewWorkflowServiceClient(conn)
	return retry(ctx, func() error {
		_, err := workflows.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
		return err
	}, codes.Unavailable)
}

// retry repeats f while it fails with one of these codes and the context lasts,
// and returns its last error.
func retry(ctx context.Context, f func() error, again ...codes.Code) error {
	var last error
	for {
		err := f()
		switch code := status.Code(err); {
		case slices.Contains(again, code):
			last = err
		case last != nil && code == codes.DeadlineExceeded:
			return last // says more than "deadline exceeded"
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(retryInterval):
		}
	}
}
