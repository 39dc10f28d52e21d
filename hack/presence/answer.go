package main

import (
	"errors"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// answer is what an answer says about the token.
type answer int

// The answers. An error that a node returns after it has admitted the token, for example because a
// capability is missing or Redis is down, is admitted: what counts is that the token was not
// refused. unsure is that of a node that cannot tell, and unknown is no answer, and that of a node
// which is about to end.
const (
	admitted answer = iota + 1
	refused
	unsure
	unknown
)

// answers are all of them.
var answers = []answer{admitted, refused, unsure, unknown}

// String returns the answer in words.
func (a answer) String() string {
	switch a {
	case admitted:
		return "admitted"
	case refused:
		return "refused"
	case unsure:
		return "cannot tell"
	default:
		return "no answer"
	}
}

// answerOf returns what the error of a call says about its token.
func answerOf(err error) answer {
	if err == nil {
		return admitted
	}
	failed, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(err) {
		return unknown
	}
	switch reasonOf(failed) {
	case parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED:
		if failed.Code() == connect.CodeUnauthenticated {
			return refused
		}
		return admitted
	case parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN:
		return unsure
	case parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, parleyv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED:
		return unknown
	case parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		switch failed.Code() {
		case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded:
			return unknown
		default:
			return admitted
		}
	default:
		return admitted
	}
}

func reasonOf(failed *connect.Error) parleyv1.ErrorReason {
	for _, d := range failed.Details() {
		if v, err := d.Value(); err == nil {
			if detail, ok := v.(*parleyv1.ErrorDetail); ok {
				return detail.GetReason()
			}
		}
	}
	return parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}
