package blobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"

	"github.com/laneway/laneway/mailbox"
)

var (
	// ErrRefused: the bucket's server does not accept the credentials, or they may
	// not do this.
	ErrRefused = errors.New("the bucket refuses the credentials in the environment, or they may not do this")
	// ErrNoCredentials: the SDK's environment has none.
	ErrNoCredentials = errors.New("the environment has no credentials for the bucket")
	// ErrNoBucket: the server has no such bucket.
	ErrNoBucket = errors.New("there is no such bucket")
)

// refusals are S3's codes that gocloud.dev does not know as "permission denied".
var refusals = []string{
	"AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AllAccessDisabled",
	"AccountProblem", "RequestTimeTooSkewed",
	"XAdminUserNotFound", // versitygw, for InvalidAccessKeyId
}

// noCredentials is the step of a request that asks the environment for them; the
// SDK has no type for its failure.
const noCredentials = "get credentials: "

// failed is an operation's error: mailbox.ErrNotFound, or mailbox.ErrStoreUnavailable
// with what has to be set right, if that is known. The cause stays matchable.
func failed(op, key string, err error) error {
	err = classify(err)
	if key == "" {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s blob %s: %w", op, key, err)
}

func classify(err error) error {
	code := ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err // the caller's own doing
	case errors.Is(err, ErrNoBucket):
		return fmt.Errorf("%w: %w", mailbox.ErrStoreUnavailable, err)
	case code == "NoSuchBucket":
		return fmt.Errorf("%w: %w: %w", mailbox.ErrStoreUnavailable, ErrNoBucket, err)
	case slices.Contains(refusals, code), gcerrors.Code(err) == gcerrors.PermissionDenied:
		return fmt.Errorf("%w: %w: %w", mailbox.ErrStoreUnavailable, ErrRefused, err)
	case strings.Contains(err.Error(), noCredentials):
		return fmt.Errorf("%w: %w: %w", mailbox.ErrStoreUnavailable, ErrNoCredentials, err)
	case gcerrors.Code(err) == gcerrors.NotFound:
		return fmt.Errorf("%w: %w", mailbox.ErrNotFound, err)
	}
	return fmt.Errorf("%w: %w", mailbox.ErrStoreUnavailable, err)
}
