package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ensureNamespaces waits until the service answers for every namespace, and
// brings those that an earlier run left in the database to the wanted retention
// and attributes.
func (o Options) ensureNamespaces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(o.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, name := range o.namespaces() {
		if err := retry(ctx, func() error { return o.ensureNamespace(ctx, conn, name) }); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

func (o Options) ensureNamespace(ctx context.Context, conn *grpc.ClientConn, name string) error {
	workflows, operator := workflowservice.NewWorkflowServiceClient(conn), operatorservice.NewOperatorServiceClient(conn)
	d, err := workflows.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err != nil {
		return err
	}
	if d.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() != o.Retention {
		if _, err := workflows.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace: name,
			Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(o.Retention)},
		}); err != nil {
			return err
		}
	}
	have, err := operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: name})
	if err != nil {
		return err
	}
	missing := map[string]enumspb.IndexedValueType{}
	for k, t := range o.SearchAttributes {
		if _, ok := have.GetCustomAttributes()[k]; !ok {
			missing[k] = t
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: name, SearchAttributes: missing})
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil
	}
	return err
}

// retry repeats f until it succeeds: a service that starts refuses calls for a
// moment, with errors of many kinds.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
