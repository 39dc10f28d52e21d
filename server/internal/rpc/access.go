package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// accessRule is the capability that a method's calls require. It is checked with only the token and
// the request, before any lookup, so a refusal does not reveal what exists. The domain checks what
// depends on more, such as the membership of a channel, or on several fields, such as the sender of
// a message.
type accessRule struct {
	scope scope
	// field is the path of the field that names the channel, the session or the topic. If the path
	// begins with a list of channels, or ends with a list of topics, the call requires the capability
	// for every item. If a message on the path is not set, the request names nothing and requires
	// nothing.
	field string
	// actions are alternatives: the token must allow one of them. A refusal names the first.
	actions []ident.Action
}

// scope is what a capability applies to.
type scope uint8

const (
	noScope       scope = iota // not set; NewHandler fails
	tokenScope                 // no capability: any valid token is enough
	channelScope               // a channel
	sessionScope               // a session
	topicScope                 // a topic, or several
	queueScope                 // any topic
	presenceScope              // PresenceService
	adminScope                 // AdminService
	itemScope                  // each item of the request, checked like the request of a call of its own
)

// anyToken admits every caller with a valid token.
func anyToken() accessRule { return accessRule{scope: tokenScope} }

// byUseCase admits every caller with a valid token, like anyToken. The domain decides, because the
// decision depends on more than the token and the request's channel. A capability is checked in one
// place: by the method's row, or by the domain.
func byUseCase() accessRule { return accessRule{scope: tokenScope} }

// onChannel requires one of the actions on the channel that the request's field channel_id names.
func onChannel(actions ...ident.Action) accessRule {
	return accessRule{scope: channelScope, field: "channel_id", actions: actions}
}

// onSession requires one of the actions on the session that the request's field session_id names.
// If it is empty, the domain checks the action.
func onSession(actions ...ident.Action) accessRule {
	return accessRule{scope: sessionScope, field: "session_id", actions: actions}
}

// onTopic requires the action on the topic that the request's field topic names.
func onTopic(action ident.Action) accessRule {
	return accessRule{scope: topicScope, field: "topic", actions: []ident.Action{action}}
}

// onTopics requires the action on each of the topics that the request's field topics names.
func onTopics(action ident.Action) accessRule { return onTopic(action).in("topics") }

// onAnyTopic requires the action consume on at least one topic. It is for requests that do not name
// one in a field of their own: the handler checks the topics of their items.
func onAnyTopic() accessRule {
	return accessRule{scope: queueScope, actions: []ident.Action{ident.Consume}}
}

// onPresence requires one of the actions of the capability presence.
func onPresence(actions ...ident.Action) accessRule {
	return accessRule{scope: presenceScope, actions: actions}
}

// asOperator requires the capability admin: the action read for a method without side effects, the
// action write for all others.
func asOperator() accessRule { return accessRule{scope: adminScope} }

// perItem leaves the check to the handler. The items of such a request are requests of another
// method, and the handler checks each by that method's row.
func perItem() accessRule { return accessRule{scope: itemScope} }

// in returns a copy of the rule whose field is the given path.
func (a accessRule) in(field string) accessRule {
	a.field = field
	return a
}

// bindAccess resolves what the method's access rule leaves open: the descriptors of its field, and
// the action of an AdminService method. It fails if the rule does not fit the request.
func (m *method) bindAccess() error {
	switch m.access.scope {
	case tokenScope:
		return nil
	case adminScope:
		action := ident.Read
		if m.sideEffects {
			action = ident.Write
		}
		m.access.actions = []ident.Action{action}
		return nil
	case presenceScope, queueScope:
		if len(m.access.actions) == 0 {
			return errors.New("the access rule has no action")
		}
		return nil
	case itemScope:
		if m.items == nil || m.items.Message() == nil {
			return errors.New("the request has no list of requests")
		}
		return nil
	case channelScope, sessionScope, topicScope:
	default:
		return errors.New("the row has no access rule")
	}
	if len(m.access.actions) == 0 {
		return errors.New("the access rule has no action")
	}
	md := m.descriptor.Input()
	for i, name := range strings.Split(m.access.field, ".") {
		if md == nil {
			return fmt.Errorf("the request has no field %s", m.access.field)
		}
		fd := md.Fields().ByName(protoreflect.Name(name))
		if fd == nil || fd.IsMap() || fd.IsList() && m.access.scope != topicScope && (i > 0 || m.access.scope != channelScope) {
			return fmt.Errorf("the request has no field %s", m.access.field)
		}
		m.target, md = append(m.target, fd), fd.Message()
	}
	last := m.target[len(m.target)-1]
	if last.Kind() != protoreflect.StringKind || last.IsList() && m.access.scope != topicScope {
		return fmt.Errorf("the request's field %s is not a single string", m.access.field)
	}
	return nil
}

// authorize returns a CAPABILITY_MISSING fault if the caller's token does not allow the request. It
// admits every request with the scopes tokenScope and itemScope.
func (m *method) authorize(p *ident.Principal, request any) error {
	switch m.access.scope {
	case tokenScope, itemScope:
		return nil
	case adminScope:
		if action := m.access.actions[0]; !p.CanAdmin(action) {
			return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
				"the token has no capability \"admin\" with the action %q", action)
		}
		return nil
	case presenceScope:
		return checkPresence(p, m.access.actions...)
	case queueScope:
		if !canQueueSomewhere(p, m.access.actions[0]) {
			return m.access.refusal()
		}
		return nil
	case channelScope, sessionScope, topicScope:
	default:
		return fmt.Errorf("%s has no access rule", m.procedure)
	}
	r, ok := request.(proto.Message)
	if !ok {
		return errNotMessage(request)
	}
	first := m.target[0]
	if m.target[len(m.target)-1].IsList() {
		return m.access.forAll(p, r.ProtoReflect(), m.target)
	}
	if !first.IsList() {
		if name, ok := nameAt(r.ProtoReflect(), m.target); ok && !m.access.allows(p, name) {
			return m.access.refusal()
		}
		return nil
	}
	var refused *fault.Error
	for i, list := 0, r.ProtoReflect().Get(first).List(); i < list.Len(); i++ {
		name, ok := nameAt(list.Get(i).Message(), m.target[1:])
		if !ok || m.access.allows(p, name) {
			continue
		}
		if refused == nil {
			refused = m.access.refusalOf(i, name)
		}
		refused.Positions = append(refused.Positions, fault.Position{ChannelID: name})
	}
	if refused == nil {
		return nil
	}
	return refused
}

// forAll returns a CAPABILITY_MISSING fault unless the token allows one of the actions on all names
// of the list at the end of a path.
func (a accessRule) forAll(p *ident.Principal, m protoreflect.Message, path []protoreflect.FieldDescriptor) error {
	for ; len(path) > 1; path = path[1:] {
		if !m.Has(path[0]) {
			return nil
		}
		m = m.Get(path[0]).Message()
	}
	for i, list := 0, m.Get(path[0]).List(); i < list.Len(); i++ {
		if !a.allows(p, list.Get(i).String()) {
			return a.refusal()
		}
	}
	return nil
}

// canQueueSomewhere reports whether the token allows the action on at least one topic.
func canQueueSomewhere(p *ident.Principal, action ident.Action) bool {
	return slices.ContainsFunc(p.Queues, func(c ident.Capability) bool { return slices.Contains(c.Actions, action) })
}

// checkPresence returns a CAPABILITY_MISSING fault, which names the first of the actions, if the
// token does not allow any of them in PresenceService.
func checkPresence(p *ident.Principal, actions ...ident.Action) error {
	if slices.ContainsFunc(actions, p.CanPresence) {
		return nil
	}
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"the token has no capability \"presence\" with the action %q", actions[0])
}

// nameAt returns the string field at the end of a path, and whether all messages on the path are
// set.
func nameAt(m protoreflect.Message, path []protoreflect.FieldDescriptor) (string, bool) {
	for ; len(path) > 1; path = path[1:] {
		if !m.Has(path[0]) {
			return "", false
		}
		m = m.Get(path[0]).Message()
	}
	return m.Get(path[0]).String(), true
}

// allows reports whether the token allows one of the actions on the channel, session or topic.
func (a accessRule) allows(p *ident.Principal, name string) bool {
	can := p.Covers // the domain checks the membership for a capability on the subject's channels
	switch a.scope {
	case topicScope:
		can = p.CanQueue
	case sessionScope:
		can = func(action ident.Action, id string) bool { return id == "" || p.CanSession(action, id) }
	default:
	}
	for _, action := range a.actions {
		if can(action, name) {
			return true
		}
	}
	return false
}

// refusal returns the CAPABILITY_MISSING fault. It does not repeat the name of the channel, session
// or topic, which may not be validated yet and have any form.
func (a accessRule) refusal() error {
	what := "for this channel"
	switch a.scope {
	case topicScope, queueScope:
		what = "for the topic"
	case sessionScope:
		what = "for this session"
	default:
	}
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing, "the token has no capability %q %s", a.actions[0], what)
}

// refusalOf returns refusal's fault for item i of a list of channels, the first that is refused. It
// names the channel and its field.
func (a accessRule) refusalOf(i int, name string) *fault.Error {
	list, rest, _ := strings.Cut(a.field, ".")
	f := fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"the token has no capability %q for channel %s", a.actions[0], name)
	f.Field = fmt.Sprintf("%s[%d].%s", list, i, rest)
	return f
}
