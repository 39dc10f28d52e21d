package server_test

import "google.golang.org/protobuf/reflect/protoreflect"

// replaced reports whether a method belongs to the queues' API that parley.v1 replaces. It and
// its uses go with that API.
func replaced(m protoreflect.MethodDescriptor) bool {
	service, ok := m.Parent().(protoreflect.ServiceDescriptor)
	return ok && service.Methods().ByName("GrantCredits") != nil || m.Input().ParentFile().Path() == "parley/v1/admin_queue.proto"
}
