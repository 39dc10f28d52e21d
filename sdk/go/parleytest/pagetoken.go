package parleytest

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// pageToken is the content of a page token. Query, User and Epoch are those of the list call. Last
// is the place in the list at which the next page continues: a seq or an id.
type pageToken struct {
	Query, User, Epoch, Last string
}

// sealLocked returns a page token for the caller that continues a query at last.
func (s *shared) sealLocked(ctx context.Context, query, epoch, last string) string {
	data, _ := json.Marshal(pageToken{query, s.userLocked(ctx), epoch, last}) //nolint:errchkjson // strings only
	return base64.RawURLEncoding.EncodeToString(data)
}

// openLocked returns the Last of a page token. It returns "" if text is empty, and an error if the
// token is malformed or of another user, query or epoch.
func (s *shared) openLocked(ctx context.Context, text, query, epoch string) (last string, err error) {
	if text == "" {
		return "", nil
	}
	var t pageToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &t) != nil {
		return "", errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, "page_token", 0)
	}
	switch {
	case t.User != s.userLocked(ctx):
		return "", errorAt(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_FOREIGN, "page_token", 0)
	case t.Query != query:
		return "", errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, "page_token", 0)
	case t.Epoch != epoch:
		return "", errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_RESYNC, "page_token", 0)
	default:
		return t.Last, nil
	}
}
