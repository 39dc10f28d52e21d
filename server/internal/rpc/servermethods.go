package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// serverMethods is the method table of ServerService.
var serverMethods = service{
	name: parleyv1connect.ServerServiceName,
	methods: map[protoreflect.Name]methodRow{
		"GetServerInfo": {access: anyToken()},
	},
}
