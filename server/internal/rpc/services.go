package rpc

import (
	"iter"
	"net/http"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// service is one that takes a token.
type service struct {
	descriptor protoreflect.ServiceDescriptor
	handler    http.Handler
}

// servicesOf gives all of them.
func servicesOf(cfg *Config, deps *Deps, validator protovalidate.Validator, opts []connect.HandlerOption) []service {
	_, messages := parleyv1connect.NewMessageServiceHandler(
		&messageService{cfg: *cfg, deps: *deps, validator: validator}, opts...)
	_, queues := parleyv1connect.NewQueueServiceHandler(
		&queueService{cfg: *cfg, deps: *deps, validator: validator}, opts...)
	_, admin := parleyv1connect.NewAdminServiceHandler(
		&adminService{deps: *deps, pages: pagetoken.New(deps.PageSecret)}, opts...)
	_, about := parleyv1connect.NewServerServiceHandler(&serverService{cfg: *cfg, deps: *deps}, opts...)
	return []service{
		{parleyv1.File_parley_v1_message_proto.Services().ByName("MessageService"), messages},
		{parleyv1.File_parley_v1_queue_proto.Services().ByName("QueueService"), queues},
		{parleyv1.File_parley_v1_admin_proto.Services().ByName("AdminService"), admin},
		{parleyv1.File_parley_v1_server_proto.Services().ByName("ServerService"), about},
	}
}

// serviceNames are what reflection and health know, besides health itself.
var serviceNames = []string{
	parleyv1connect.MessageServiceName, parleyv1connect.QueueServiceName, parleyv1connect.AdminServiceName,
	parleyv1connect.ServerServiceName,
}

// apiMethods returns the methods of all services that take a token.
func apiMethods() iter.Seq[protoreflect.MethodDescriptor] {
	return func(yield func(protoreflect.MethodDescriptor) bool) {
		for _, file := range []protoreflect.FileDescriptor{
			parleyv1.File_parley_v1_message_proto, parleyv1.File_parley_v1_queue_proto, parleyv1.File_parley_v1_admin_proto,
			parleyv1.File_parley_v1_server_proto,
		} {
			for i := range file.Services().Len() {
				methods := file.Services().Get(i).Methods()
				for j := range methods.Len() {
					if !yield(methods.Get(j)) {
						return
					}
				}
			}
		}
	}
}

// hasSideEffects reports whether the schema lets a call of the method change something.
func hasSideEffects(method protoreflect.MethodDescriptor) bool {
	o, ok := method.Options().(*descriptorpb.MethodOptions)
	return !ok || o.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// changing holds the requests of the calls that change something. Subscribe, which only reads, has no side effects either; the
// schema does not say so, for clients would then call it by GET.
var changing = func() map[protoreflect.FullName]bool {
	out := make(map[protoreflect.FullName]bool)
	for method := range apiMethods() {
		if hasSideEffects(method) && procedureOf(method) != parleyv1connect.MessageServiceSubscribeProcedure {
			out[method.Input().FullName()] = true
		}
	}
	return out
}()

// policies returns the policy of every procedure that has one. It fails for a procedure of which nothing says who may call it.
func policies() (map[string]policy, error) {
	out := make(map[string]policy)
	for method := range apiMethods() {
		may, err := policyOf(method)
		if err != nil {
			return nil, err
		}
		if may != nil {
			out[procedureOf(method)] = may
		}
	}
	return out, nil
}

func procedureOf(method protoreflect.MethodDescriptor) string {
	return "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
}
