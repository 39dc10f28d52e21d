package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/parleyhq/parley/server/internal/ident"
)

// service is the method table of one service of the API, with a row for each of its methods.
type service struct {
	name    protoreflect.FullName
	methods map[protoreflect.Name]methodRow
	// rulesFirst has requests validated before the caller's capability is checked. Clients of
	// MessageService rely on that order. In all other services the capability is checked first, so
	// that the answer to a caller without it says nothing about the request.
	rulesFirst bool
}

// services are the method tables of all services. Every call of them requires a token.
var services = []service{
	messageMethods, queueMethods, presenceMethods, adminMethods, serverMethods,
}

// methodRow is a row of a service's method table: what the schema does not state about a method.
// Everything else is read from the schema, see method.
type methodRow struct {
	// access is the capability that a call requires. Every row must set it.
	access accessRule
	// requires checks capabilities that depend on more of the request than access can express. It is
	// called after the check of access, and like it before any lookup. Nil means that there are none.
	requires func(p *ident.Principal, request proto.Message) error
	// prepare removes what is repeated from lists of the request and checks their lengths, before any
	// item is validated. Nil means that there is nothing to do.
	prepare func(cfg *Config, request proto.Message) error
	// size is the size class of a request, which bounds its bytes. The default is smallRequest.
	size requestSize
	// maxElements bounds the fields and values of one binary request, at all depths. 0 means
	// defaultElements.
	maxElements int
	// maxPage is the maximum of the request's page_size; a larger one is lowered to it. It is set for
	// requests with a page_size, and only for those.
	maxPage int32
	// perStream names the lists of channels in the request. Config.ChannelsPerStream bounds each.
	perStream []protoreflect.Name
	// chargeItems has the rate limiter charge each item of the request's list of items as one call.
	// Otherwise the request is charged as one call.
	chargeItems bool
	// settles marks a method that settles or extends deliveries. Deps.Settles limits its calls in
	// place of Deps.Limiter.
	settles bool
	// uncompressed turns off the compression of the method's responses, which have a few bytes per
	// item of a larger request: gzip takes a twentieth of such a call's time. Responses of streams are
	// never compressed.
	uncompressed bool
	// reads marks a method that changes nothing, although its idempotency_level in the schema is not
	// NO_SIDE_EFFECTS. With that level clients would call it by GET.
	reads bool
}

// requestSize is a size class of requests. It bounds their bytes after decompression.
type requestSize uint8

const (
	smallRequest   requestSize = iota // Config.OtherReadBytes: all other requests
	contentRequest                    // Config.SendReadBytes: one message's content
	batchRequest                      // Config.BatchReadBytes: a list of up to a thousand items, or a session's message
)

// method is everything known about one method: its row, and what the schema states.
type method struct {
	methodRow

	// descriptor is nil for a method outside of the API, such as those of health checks. procedure is
	// the URL path.
	descriptor protoreflect.MethodDescriptor
	procedure  string
	rulesFirst bool
	// sideEffects is false if the method's idempotency_level is NO_SIDE_EFFECTS. Such a method can be
	// called by GET.
	sideEffects bool
	// serverStreams and clientStreams report whether the responses and the requests are streams.
	serverStreams, clientStreams bool
	// items is the list of the request whose items the handler validates one by one; nil if there is
	// none. itemized is also set if such a list is not in the request itself but in one of its
	// messages.
	items    protoreflect.FieldDescriptor
	itemized bool
	// lists are the lists of the request that have a maximum length. It is checked before any item is
	// read.
	lists []boundedList
	// target is the path access.field as descriptors; empty if the rule names no field.
	target []protoreflect.FieldDescriptor
	// pageSize and topic are the request's fields of these names; nil if it has none.
	pageSize, topic protoreflect.FieldDescriptor
}

// streams reports whether the requests or the responses are a stream. Such a call may live as long
// as its client keeps it.
func (m *method) streams() bool { return m.serverStreams || m.clientStreams }

// strict reports whether a JSON request with an unknown field is refused: a call that changes
// something would otherwise do less than its caller thinks.
func (m *method) strict() bool { return m.sideEffects && !m.reads }

// readBytes returns the maximum size of a request in bytes, after decompression.
func (m *method) readBytes(cfg *Config) int {
	switch m.size {
	case contentRequest:
		return cfg.SendReadBytes
	case batchRequest:
		return cfg.BatchReadBytes
	default:
		return cfg.OtherReadBytes
	}
}

// methodSet holds the methods of all services. It is immutable.
type methodSet struct {
	all         []*method
	byProcedure map[string]*method
	byRequest   map[protoreflect.FullName]*method
	// lists holds, by the name of the message, the lists with a maximum length of each request, and of
	// each message that is an item of a request.
	lists map[protoreflect.FullName][]boundedList
}

// api holds the methods of the API. errTables is the error of method tables that do not fit the
// schema. If it is not nil, NewHandler fails.
var api, errTables = newMethodSet(services, servicesOf("parley.v1"))

// otherMethod stands for all procedures outside of the API except healthWatch, which is health's
// Watch: its stream lives as long as its client keeps it.
var (
	otherMethod = &method{methodRow: methodRow{maxElements: defaultElements}}
	healthWatch = &method{methodRow: otherMethod.methodRow, procedure: healthWatchProcedure, serverStreams: true}
)

// forProcedure returns the method with this URL path; healthWatch or otherMethod for a path outside
// of the API. It never returns nil.
func (s *methodSet) forProcedure(procedure string) *method {
	if m := s.byProcedure[procedure]; m != nil {
		return m
	}
	if procedure == healthWatch.procedure {
		return healthWatch
	}
	return otherMethod
}

// forRequest returns the method whose request is the message with this name; otherMethod for a
// message that is not a request of the API. It never returns nil.
func (s *methodSet) forRequest(request protoreflect.FullName) *method {
	if m := s.byRequest[request]; m != nil {
		return m
	}
	return otherMethod
}

// servicesOf returns the services in a protobuf package of the schema.
func servicesOf(pkg protoreflect.FullName) []protoreflect.ServiceDescriptor {
	var out []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			out = append(out, file.Services().Get(i))
		}
		return true
	})
	return out
}

// newMethodSet joins the method tables with the schema's services. It fails unless every method of
// the schema has exactly one row, every row has a method, and every row fits its request.
func newMethodSet(tables []service, schema []protoreflect.ServiceDescriptor) (*methodSet, error) {
	set := &methodSet{
		byProcedure: map[string]*method{}, byRequest: map[protoreflect.FullName]*method{},
		lists: map[protoreflect.FullName][]boundedList{},
	}
	byName := make(map[protoreflect.FullName]*service, len(tables))
	var wrong []error
	for i := range tables {
		if byName[tables[i].name] != nil {
			wrong = append(wrong, fmt.Errorf("%s has two tables of methods", tables[i].name))
		}
		byName[tables[i].name] = &tables[i]
	}
	for _, sd := range schema {
		table := byName[sd.FullName()]
		if table == nil {
			wrong = append(wrong, fmt.Errorf("%s has no table of methods", sd.FullName()))
			continue
		}
		delete(byName, sd.FullName())
		wrong = append(wrong, set.addService(table, sd))
	}
	for name := range byName {
		wrong = append(wrong, fmt.Errorf("the schema has no service %s", name))
	}
	return set, errors.Join(wrong...)
}

func (s *methodSet) addService(table *service, sd protoreflect.ServiceDescriptor) error {
	var wrong []error
	for name := range table.methods {
		if sd.Methods().ByName(name) == nil {
			wrong = append(wrong, fmt.Errorf("the schema has no method %s.%s", table.name, name))
		}
	}
	for i := range sd.Methods().Len() {
		md := sd.Methods().Get(i)
		row, ok := table.methods[md.Name()]
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s has no row in the table of its service", md.FullName()))
			continue
		}
		m, err := newMethod(row, md, table.rulesFirst)
		if err == nil && s.byRequest[md.Input().FullName()] != nil {
			err = errors.New("another method has the same request")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", md.FullName(), err))
			continue
		}
		s.all = append(s.all, m)
		s.byProcedure[m.procedure], s.byRequest[md.Input().FullName()] = m, m
		s.lists[md.Input().FullName()] = m.lists
		if m.items != nil && m.items.Message() != nil {
			s.lists[m.items.Message().FullName()] = boundedLists(m.items.Message())
		}
	}
	return errors.Join(wrong...)
}

// newMethod joins a row with its method in the schema. It fails if the row does not fit the
// request.
func newMethod(row methodRow, md protoreflect.MethodDescriptor, rulesFirst bool) (*method, error) {
	request := md.Input()
	m := &method{
		methodRow: row, descriptor: md, rulesFirst: rulesFirst,
		procedure:     "/" + string(md.Parent().FullName()) + "/" + string(md.Name()),
		serverStreams: md.IsStreamingServer(), clientStreams: md.IsStreamingClient(), sideEffects: hasSideEffects(md),
		lists: boundedLists(request), pageSize: request.Fields().ByName("page_size"), topic: stringField(request, "topic"),
	}
	m.items, m.itemized = itemsOf(request)
	if m.maxElements == 0 {
		m.maxElements = defaultElements
	}
	for _, name := range m.perStream {
		fd := request.Fields().ByName(name)
		if fd == nil || !fd.IsList() {
			return nil, fmt.Errorf("the request has no list %s", name)
		}
	}
	if (m.pageSize != nil) != (m.maxPage > 0) {
		return nil, fmt.Errorf("maxPage %d does not match the request (has page_size: %t)", m.maxPage, m.pageSize != nil)
	}
	if m.chargeItems && m.items == nil {
		return nil, errors.New("the request has no list of items to charge")
	}
	return m, m.bindAccess()
}

// hasSideEffects reports whether a call of the method may change something: true unless the schema
// declares NO_SIDE_EFFECTS.
func hasSideEffects(md protoreflect.MethodDescriptor) bool {
	o, ok := md.Options().(*descriptorpb.MethodOptions)
	return !ok || o.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// stringField returns the message's singular string field of this name; nil if there is none.
func stringField(md protoreflect.MessageDescriptor, name protoreflect.Name) protoreflect.FieldDescriptor { //nolint:ireturn // it is one
	fd := md.Fields().ByName(name)
	if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
		return nil
	}
	return fd
}
