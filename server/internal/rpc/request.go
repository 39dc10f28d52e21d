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

// gate judges each request of one method before the handler gets it.
type gate struct {
	*method

	cfg       *Config
	deps      *Deps
	validator protovalidate.Validator
}

// check refuses a request for the first of: its caller, its form, and what the node lacks. What passes is charged. Of a stream
// of requests the handler judges the form, and answers a bad request instead of ending the stream.
func (g *gate) check(ctx context.Context, request any) error {
	if g.descriptor == nil { // health and reflection, which anyone may call
		return g.checkForm(request)
	}
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if !g.rulesFirst {
		err = g.authorize(p, request)
	}
	if err == nil && !g.clientStreams {
		err = g.checkForm(request)
	}
	if err == nil && g.rulesFirst {
		err = g.authorize(p, request)
	}
	if err == nil && g.chargeItems {
		err = g.charge(p, request)
	}
	return err
}

// checkForm refuses a request that breaks a rule, and lowers the size of a page. Items that have results of their own are
// counted only.
func (g *gate) checkForm(request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return errNoMessage(request)
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

// checkLimits judges what must be judged before a request is looked at item by item, and what the schema can't say.
func (g *gate) checkLimits(request proto.Message) error {
	m := request.ProtoReflect()
	if g.pageSize != nil {
		// A client that asks for more gets less and a token for the rest, as it may on any page.
		size := min(m.Get(g.pageSize).Int(), int64(g.maxPage))
		m.Set(g.pageSize, protoreflect.ValueOfInt32(int32(size))) //nolint:gosec // it is an int32's
	}
	for _, name := range g.perStream {
		n := m.Get(g.descriptor.Input().Fields().ByName(name)).List().Len()
		if err := tooManyChannels(string(name), n, g.cfg.ChannelsPerStream); err != nil {
			return err
		}
	}
	if err := checkLists(request, g.lists); err != nil {
		return err
	}
	if g.topic != nil {
		return notReserved("topic", m.Get(g.topic).String())
	}
	return nil
}

// charge takes the items of a batch off the caller's rate limit. The first one is the call itself.
func (g *gate) charge(p *ident.Principal, request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return errNoMessage(request)
	}
	g.deps.Limiter.Charge(p.Subject, m.ProtoReflect().Get(g.items).List().Len()-1)
	return nil
}

// checkItem does for an item of a batch what gate.checkForm does for a whole request.
func checkItem(validator protovalidate.Validator, item proto.Message) error {
	if err := checkLists(item, api.lists[item.ProtoReflect().Descriptor().FullName()]); err != nil {
		return err
	}
	if err := intercept.CheckInput(item); err != nil {
		return err
	}
	return validator.Validate(item)
}

func tooManyChannels(field string, n, limit int) error {
	if n <= limit {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.LimitExceeded, "%s: %d channels, a stream may have at most %d", field, n, limit)
	f.Field, f.Limit = field, int64(limit)
	return f
}

// reservedPrefix begins no topic's name.
const reservedPrefix = "__"

func notReserved(field, name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return fault.Invalid(field, 0, "%s: names that begin with two underscores are reserved", field)
	}
	return nil
}
