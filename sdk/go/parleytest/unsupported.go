package parleytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Unsupported returns the methods that the server does not implement, in the form
// AdminService/KickUser. A call of one fails with the code unimplemented and an error that
// begins with "parleytest:".
func Unsupported() []string {
	return []string{
		"AdminService/CreateApiKey", "AdminService/EraseUser", "AdminService/GetErasure", "AdminService/KickUser", "AdminService/ListApiKeys",
		"AdminService/ListErasures", "AdminService/ListRevocations", "AdminService/RevokeApiKey", "AdminService/RevokeTokens",
		"AdminService/RotateApiKey", "AdminService/ListPartitions", "AdminService/RepairTopic",
	}
}

// unsupported returns a handler that fails calls of unsupported methods with an error that names
// the method, and passes all others to next.
func unsupported(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		_, method, _ := strings.Cut(req.Spec().Procedure, "v1.")
		if !slices.Contains(Unsupported(), method) {
			return next(ctx, req)
		}
		err := connect.NewError(connect.CodeUnimplemented, fmt.Errorf("parleytest: %s is not supported", method))
		if d, derr := connect.NewErrorDetail(&parleyv1.ErrorDetail{
			Reason: parleyv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED, RequestId: requestID,
		}); derr == nil {
			err.AddDetail(d)
		}
		return nil, err
	}
}
