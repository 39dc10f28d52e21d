package rpc

import (
	"net/http"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

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
	return []service{
		{parleyv1.File_parley_v1_message_proto.Services().ByName("MessageService"), messages},
		{parleyv1.File_parley_v1_queue_proto.Services().ByName("QueueService"), queues},
		{parleyv1.File_parley_v1_admin_proto.Services().ByName("AdminService"), admin},
	}
}

// serviceNames are what reflection and health know, besides health itself.
var serviceNames = []string{
	parleyv1connect.MessageServiceName, parleyv1connect.QueueServiceName, parleyv1connect.AdminServiceName,
}

// policies gives the policy of every procedure that has one. It fails if nobody has said who may call one.
func policies() (map[string]policy, error) {
	out := make(map[string]policy)
	for _, file := range []protoreflect.FileDescriptor{
		parleyv1.File_parley_v1_message_proto, parleyv1.File_parley_v1_queue_proto, parleyv1.File_parley_v1_admin_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				may, err := policyOf(methods.Get(j))
				if err != nil {
					return nil, err
				}
				if may != nil {
					out[procedureOf(methods.Get(j))] = may
				}
			}
		}
	}
	return out, nil
}

func procedureOf(method protoreflect.MethodDescriptor) string {
	return "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
}
