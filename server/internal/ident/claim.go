package ident

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The names in the claim `cap`: the prefixes of names with a pattern, and the names without one.
const (
	channelPrefix = "channel:"
	memberPrefix  = "member:"
	sessionPrefix = "session:"
	queuePrefix   = "queue:"
	presenceName  = "presence"
	adminName     = "admin"
)

// SetCapabilities sets the principal's capabilities from the claim `cap`, an object. It ignores
// names that it does not know. Its error names the first capability that is malformed.
func (p *Principal) SetCapabilities(all map[string]json.RawMessage) (err error) {
	if p.Channels, err = capabilities(all, channelPrefix); err != nil {
		return err
	}
	if p.Members, err = capabilities(all, memberPrefix); err != nil {
		return err
	}
	if p.Sessions, err = capabilities(all, sessionPrefix); err != nil {
		return err
	}
	if p.Queues, err = capabilities(all, queuePrefix); err != nil {
		return err
	}
	if p.Presence, err = actionsOf(all, presenceName, PresenceActions); err != nil {
		return err
	}
	p.Admin, err = actionsOf(all, adminName, AdminActions)
	return err
}

// actionsOf returns the actions of the capability in `cap` with this name, which has no pattern;
// nil if it is not there. Its value is a list of actions, or true for every action.
func actionsOf(all map[string]json.RawMessage, name string, every []Action) (actions []Action, err error) {
	text, ok := all[name]
	if !ok {
		return nil, nil
	}
	if string(text) == "true" {
		return every, nil
	}
	if err := json.Unmarshal(text, &actions); err != nil || len(actions) == 0 {
		return nil, fmt.Errorf("capability %q: must be true or a non-empty list of actions", name)
	}
	return actions, nil
}

// capabilities returns the capabilities in `cap` whose names have the prefix, sorted by name.
func capabilities(all map[string]json.RawMessage, prefix string) ([]Capability, error) {
	var out []Capability
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pattern, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		var actions []Action
		if err := json.Unmarshal(all[name], &actions); err != nil {
			return nil, fmt.Errorf("capability %q: %w", name, err)
		}
		out = append(out, Capability{Pattern: pattern, Actions: actions})
	}
	return out, nil
}

// memberActions are the actions that a capability of memberPrefix can allow.
var memberActions = slices.DeleteFunc(slices.Clone(ChannelActions), func(a Action) bool { return a == SendAs })

// CheckActions returns an error for the first unknown action in p's capabilities. A token with it
// would seem to allow something.
func (p *Principal) CheckActions() error {
	for _, kind := range []struct {
		prefix       string
		capabilities []Capability
		known        []Action
	}{
		{channelPrefix, p.Channels, ChannelActions},
		{memberPrefix, p.Members, memberActions},
		{sessionPrefix, p.Sessions, SessionActions},
		{queuePrefix, p.Queues, QueueActions},
	} {
		for _, c := range kind.capabilities {
			if err := checkKnown(kind.prefix+c.Pattern, c.Actions, kind.known); err != nil {
				return err
			}
		}
	}
	if err := checkKnown(presenceName, p.Presence, PresenceActions); err != nil {
		return err
	}
	return checkKnown(adminName, p.Admin, AdminActions)
}

// checkKnown returns an error for the first of the actions that is not in known. The error lists
// known.
func checkKnown(capability string, actions, known []Action) error {
	for _, action := range actions {
		if slices.Contains(known, action) {
			continue
		}
		names := make([]string, len(known))
		for i, a := range known {
			names[i] = string(a)
		}
		return fmt.Errorf("capability %q: unknown action %q, must be one of %s", capability, action, strings.Join(names, ", "))
	}
	return nil
}

// CapabilityClaim returns the value of the claim `cap` for p.
func (p *Principal) CapabilityClaim() map[string]any {
	actions := make(map[string][]Action, len(p.Channels)+len(p.Members)+len(p.Sessions)+len(p.Queues))
	add := func(prefix string, capabilities []Capability) {
		for _, c := range capabilities {
			actions[prefix+c.Pattern] = append(actions[prefix+c.Pattern], c.Actions...)
		}
	}
	add(channelPrefix, p.Channels)
	add(memberPrefix, p.Members)
	add(sessionPrefix, p.Sessions)
	add(queuePrefix, p.Queues)
	out := make(map[string]any, len(actions)+2)
	for name, list := range actions {
		out[name] = list
	}
	if len(p.Presence) > 0 {
		out[presenceName] = p.Presence
	}
	if len(p.Admin) > 0 {
		out[adminName] = p.Admin
	}
	return out
}
