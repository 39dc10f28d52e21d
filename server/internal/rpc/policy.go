package rpc

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// policy says by its request alone who may make a call. It stands before all look-ups, so its answer tells nothing of what
// exists; and before the request's own rules.
type policy func(p *ident.Principal, request any) error

// queuePolicies are those of QueueService's methods. A method without one can't be served: see policyOf.
var queuePolicies = map[protoreflect.Name]policy{
	"Produce":             mayQueue(ident.Produce),
	"Schedule":            mayQueue(ident.Produce),
	"CancelScheduled":     mayQueue(ident.Produce),
	"RescheduleScheduled": mayQueue(ident.Produce),
	"Consume":             mayQueue(ident.Consume),
	"StreamingConsume":    mayStart,
	"Ack":                 mayQueue(ident.Consume),
	"Nack":                mayQueue(ident.Consume),
	"Extend":              mayQueue(ident.Consume),
	"GrantCredits":        mayQueue(ident.Consume),
	"Leave":               mayQueue(ident.Consume),
}

// policyOf returns a method's policy. It is nil if the service's use cases decide, and for ServerService, which any token may
// call. It is an error if nothing decides.
func policyOf(method protoreflect.MethodDescriptor) (policy, error) {
	switch method.Parent().FullName() {
	case parleyv1connect.MessageServiceName, parleyv1connect.ServerServiceName:
		return nil, nil //nolint:nilnil // as said
	case parleyv1connect.AdminServiceName:
		return adminPolicy(method), nil
	case parleyv1connect.QueueServiceName:
		if may := queuePolicies[method.Name()]; may != nil {
			return may, nil
		}
	}
	return nil, fmt.Errorf("nothing says who may call %s", method.FullName())
}

// adminPolicy returns the policy of a method of AdminService.
func adminPolicy(method protoreflect.MethodDescriptor) policy {
	action := ident.Read
	if hasSideEffects(method) {
		action = ident.Write
	}
	return func(p *ident.Principal, _ any) error {
		if p == nil || !p.CanAdmin(action) {
			return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
				"the token has no capability \"admin\" with the action %q", action)
		}
		return nil
	}
}

// ofTopic is a request that names a topic.
type ofTopic interface{ GetTopic() string }

// mayQueue lets those in who may do action with the request's topic.
func mayQueue(action ident.Action) policy {
	return func(p *ident.Principal, request any) error {
		r, ok := request.(ofTopic)
		if !ok {
			return fmt.Errorf("%T names no topic", request)
		}
		return mayWith(p, action, r.GetTopic())
	}
}

func mayWith(p *ident.Principal, action ident.Action, topic string) error {
	if p == nil || !p.CanQueue(action, topic) {
		// The topic is not repeated: it was not judged yet.
		return fault.New(fault.PermissionDenied, fault.CapabilityMissing, "the token has no capability %q for the topic", action)
	}
	return nil
}

// mayStart judges the request that names a stream's topic. The others are about that stream.
func mayStart(p *ident.Principal, request any) error {
	r, ok := request.(*parleyv1.StreamingConsumeRequest)
	if !ok {
		return fmt.Errorf("%T is no request of a stream", request)
	}
	if start := r.GetStart(); start != nil {
		return mayWith(p, ident.Consume, start.GetTopic())
	}
	return nil
}
