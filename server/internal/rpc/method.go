package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// service is the table of a service of the API: a row for each of its methods.
type service struct {
	name    protoreflect.FullName
	methods map[protoreflect.Name]facts
	// rulesFirst refuses a request that breaks the schema's rules before it asks who calls. Clients of MessageService rely on
	// that order. In all other services a caller without the capability learns nothing about the request.
	rulesFirst bool
}

// services are all services of parley.v1. Each of their calls requires a token.
var services = []service{messageMethods, queueMethods, adminMethods, serverMethods}

// facts are a row of a service's table: what the schema does not state about a method. All other facts are read from the
// schema, see method.
type facts struct {
	// access is the capability that a call requires. Every row has one.
	access access
	// size is the class of a request's size. The default is smallRequest.
	size requestSize
	// maxElements bounds the fields and values of a binary request. 0 is defaultElements.
	maxElements int
	// maxPage lowers the request's page_size. Requests with a page_size have one, and no others.
	maxPage int32
	// perStream are the request's lists that Config.ChannelsPerStream bounds.
	perStream []protoreflect.Name
	// chargeItems charges each item of the request's list of items as one call. Otherwise the request is charged as one.
	chargeItems bool
	// uncompressed leaves responses uncompressed that are a few bytes for each item of a larger request: gzip takes a
	// twentieth of such a call's time. Streams are never compressed.
	uncompressed bool
	// reads marks a method that changes nothing although its idempotency_level is not NO_SIDE_EFFECTS, which would have
	// clients call it by GET.
	reads bool
}

// requestSize is a class of the size of requests, in bytes after decompression.
type requestSize uint8

const (
	smallRequest   requestSize = iota // Config.OtherReadBytes
	contentRequest                    // Config.SendReadBytes: one message's content
	batchRequest                      // Config.BatchReadBytes: a list of up to a thousand items
)

// method is all that is known about one method: its row, and what the schema states.
type method struct {
	facts

	// descriptor is nil for a method outside of the API, such as health's. procedure is the path in URLs.
	descriptor protoreflect.MethodDescriptor
	procedure  string
	rulesFirst bool
	// sideEffects is false for idempotency_level NO_SIDE_EFFECTS. Such a method can be called by GET.
	sideEffects bool
	// serverStreams and clientStreams are set for streams of responses and of requests.
	serverStreams, clientStreams bool
	// items is the request's own list of items that are validated one by one; nil for none. itemized is also set for such a
	// list in a message of the request.
	items    protoreflect.FieldDescriptor
	itemized bool
	// lists are bounded before anything looks at their items.
	lists []boundedList
	// target is the path of access.field.
	target []protoreflect.FieldDescriptor
	// pageSize is the field page_size; nil for none. topic is the field topic.
	pageSize, topic protoreflect.FieldDescriptor
}

// streams reports whether the call lives as long as its client wants.
func (m *method) streams() bool { return m.serverStreams || m.clientStreams }

// strict reports whether JSON requests must not have unknown fields: a call that changes something would otherwise do less
// than its caller thinks.
func (m *method) strict() bool { return m.sideEffects && !m.reads }

// readBytes returns the most bytes that a request may have after decompression.
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

// methodSet is the methods of all services. It is immutable.
type methodSet struct {
	all         []*method
	byProcedure map[string]*method
	byRequest   map[protoreflect.FullName]*method
	// lists are the bounded lists of the requests, and of items that are requests or messages of their own.
	lists map[protoreflect.FullName][]boundedList
}

// api is the methods of the API. errTables says what is wrong with the tables of services; then nothing can be served.
var api, errTables = newMethodSet(services, servicesOf("parley.v1"))

// other stands for the procedures outside of the API, except for healthWatch, whose stream lives as long as its client wants.
var (
	other       = &method{facts: facts{maxElements: defaultElements}}
	healthWatch = &method{facts: other.facts, procedure: healthWatchProcedure, serverStreams: true}
)

// at returns the method with this path in URLs.
func (s *methodSet) at(procedure string) *method {
	if m := s.byProcedure[procedure]; m != nil {
		return m
	}
	if procedure == healthWatch.procedure {
		return healthWatch
	}
	return other
}

// of returns the method with this request; other for a message that is no request of the API.
func (s *methodSet) of(request protoreflect.FullName) *method {
	if m := s.byRequest[request]; m != nil {
		return m
	}
	return other
}

// servicesOf returns the services that the schema has in a package.
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

// newMethodSet joins the tables with the schema's services. It fails unless every method of the schema has exactly one row,
// every row has a method, and what a row says fits its request.
func newMethodSet(tables []service, schema []protoreflect.ServiceDescriptor) (*methodSet, error) {
	set := &methodSet{
		byProcedure: map[string]*method{}, byRequest: map[protoreflect.FullName]*method{},
		lists: map[protoreflect.FullName][]boundedList{},
	}
	byName := make(map[protoreflect.FullName]*service, len(tables))
	var wrong []error
	for i := range tables {
		if byName[tables[i].name] != nil {
			wrong = append(wrong, fmt.Errorf("%s has two tables", tables[i].name))
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

// newMethod joins a row with the schema.
func newMethod(row facts, md protoreflect.MethodDescriptor, rulesFirst bool) (*method, error) {
	request := md.Input()
	m := &method{
		facts: row, descriptor: md, rulesFirst: rulesFirst,
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
		return nil, fmt.Errorf("the largest page is %d, and the request has a page_size: %t", m.maxPage, m.pageSize != nil)
	}
	if m.chargeItems && m.items == nil {
		return nil, errors.New("the request has no list of items to charge")
	}
	return m, m.bindAccess()
}

// hasSideEffects reports whether the schema lets a call of the method change something.
func hasSideEffects(md protoreflect.MethodDescriptor) bool {
	o, ok := md.Options().(*descriptorpb.MethodOptions)
	return !ok || o.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// stringField returns the message's string field of this name; nil if it has none.
func stringField(md protoreflect.MessageDescriptor, name protoreflect.Name) protoreflect.FieldDescriptor { //nolint:ireturn // it is one
	fd := md.Fields().ByName(name)
	if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
		return nil
	}
	return fd
}
