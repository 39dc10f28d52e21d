package rpc

import (
	"context"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
)

// gate authorizes, validates and charges each request of one method before the handler gets it.
type gate struct {
	*method

	cfg       *Config
	deps      *Deps
	validator protovalidate.Validator
}

// check authorizes and validates a request, in the order that rulesFirst sets, and then charges the
// items of a batch. The requests of a client's stream are not validated here: the handler does
// that, and answers an invalid one instead of ending the stream.
func (g *gate) check(ctx context.Context, request any) error {
	if g.descriptor == nil { // health and reflection, which anyone may call
		return g.checkForm(request)
	}
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if !g.rulesFirst {
		err = g.admit(p, request)
	}
	if err == nil && !g.clientStreams {
		err = g.checkForm(request)
	}
	if err == nil && g.rulesFirst {
		err = g.admit(p, request)
	}
	if err == nil && g.chargeItems {
		err = g.charge(p, request)
	}
	return err
}

// admit returns a CAPABILITY_MISSING fault if the caller's token does not allow the request.
func (g *gate) admit(p *ident.Principal, request any) error {
	if err := g.authorize(p, request); err != nil || g.requires == nil {
		return err
	}
	m, ok := request.(proto.Message)
	if !ok {
		return errNotMessage(request)
	}
	return g.requires(p, m)
}

// checkForm validates a request, and lowers a page_size above the maximum. Items that have results
// of their own are only counted; the handler validates them.
func (g *gate) checkForm(request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return errNotMessage(request)
	}
	if err := g.checkLimits(m); err != nil {
		return err
	}
	if !g.itemized {
		if err := intercept.CheckInput(m); err != nil {
			return err
		}
	}
	return g.validator.Validate(m)
}

// checkLimits lowers a page_size above the maximum, and checks the lengths of the lists, before any
// item is read. It also checks what the schema can't express: the number of channels, and that a
// topic's name is not reserved.
func (g *gate) checkLimits(request proto.Message) error {
	m := request.ProtoReflect()
	if g.pageSize != nil {
		// A page may always be shorter than requested, with a token for the rest.
		size := min(m.Get(g.pageSize).Int(), int64(g.maxPage))
		m.Set(g.pageSize, protoreflect.ValueOfInt32(int32(size))) //nolint:gosec // it is an int32's
	}
	for _, name := range g.perStream {
		n := m.Get(g.descriptor.Input().Fields().ByName(name)).List().Len()
		if err := checkChannelCount(string(name), n, g.cfg.ChannelsPerStream); err != nil {
			return err
		}
	}
	if err := checkLists(request, g.lists); err != nil {
		return err
	}
	if g.prepare != nil {
		if err := g.prepare(g.cfg, request); err != nil {
			return err
		}
	}
	if g.topic != nil {
		return checkNotReserved("topic", m.Get(g.topic).String())
	}
	return nil
}

// charge charges a batch's items to the caller's rate limit, each as one call. The call itself has
// paid for the first.
func (g *gate) charge(p *ident.Principal, request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return errNotMessage(request)
	}
	g.deps.Limiter.Charge(p.Subject, m.ProtoReflect().Get(g.items).List().Len()-1)
	return nil
}

// checkItem validates an item of a batch, as gate.checkForm validates a whole request.
func checkItem(validator protovalidate.Validator, item proto.Message) error {
	if err := checkLists(item, api.lists[item.ProtoReflect().Descriptor().FullName()]); err != nil {
		return err
	}
	if err := intercept.CheckInput(item); err != nil {
		return err
	}
	return validator.Validate(item)
}

func checkChannelCount(field string, n, limit int) error {
	if n <= limit {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.LimitExceeded, "%s: has %d channels, at most %d are allowed", field, n, limit)
	f.Field, f.Limit = field, int64(limit)
	return f
}

// reservedPrefix is the prefix of reserved names. No request may name a topic that begins with it.
const reservedPrefix = "__"

func checkNotReserved(field, name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return fault.Invalid(field, 0, "%s: names that begin with two underscores are reserved", field)
	}
	return nil
}
