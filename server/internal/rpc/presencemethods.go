package rpc

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// presenceMethods is the method table of PresenceService.
var presenceMethods = service{
	name: parleyv1connect.PresenceServiceName,
	methods: map[protoreflect.Name]methodRow{
		"Connect":     {access: anyToken(), requires: connectAccess, prepare: prepareConnect, size: batchRequest},
		"UpdateWatch": {access: onPresence(ident.Watch), size: batchRequest},
		"WatchChannel": {access: onPresence(ident.Watch), requires: func(p *ident.Principal, request proto.Message) error {
			r, _ := request.(*parleyv1.WatchChannelRequest)
			return checkSubscribe(p, r.GetChannelId(), "channel_id")
		}},
		"UnwatchChannel":  {access: onPresence(ident.Watch)},
		"SetBackground":   {access: onPresence(ident.Connect)},
		"Disconnect":      {access: onPresence(ident.Connect, ident.Watch)},
		"GetPresence":     {access: onPresence(ident.Watch), size: batchRequest},
		"ListOnlineUsers": {access: onPresence(ident.List), maxPage: 1000},
		"SignOut":         {access: anyToken()},
	},
}

// connectAccess checks the capabilities of a Connect.
func connectAccess(p *ident.Principal, request proto.Message) error {
	r, _ := request.(*parleyv1.ConnectRequest)
	return checkConnectAccess(p, r, "")
}

// subscribeAccess checks the capabilities that the presence in a Subscribe requires.
func subscribeAccess(p *ident.Principal, request proto.Message) error {
	r, _ := request.(*parleyv1.SubscribeRequest)
	if r.GetPresence() == nil {
		return nil
	}
	return checkConnectAccess(p, r.GetPresence(), inPresence)
}

// inPresence is the path of the ConnectRequest in a SubscribeRequest, with its dot.
const inPresence = "presence."

func checkConnectAccess(p *ident.Principal, r *parleyv1.ConnectRequest, prefix string) error {
	if !r.GetInvisible() {
		if err := checkPresence(p, ident.Connect); err != nil {
			return err
		}
	}
	if r.GetInvisible() || len(r.GetWatch()) > 0 || len(r.GetWatchChannels()) > 0 {
		if err := checkPresence(p, ident.Watch); err != nil {
			return err
		}
	}
	for i, id := range r.GetWatchChannels() {
		if err := checkSubscribe(p, id, fmt.Sprintf("%swatch_channels[%d]", prefix, i)); err != nil {
			return err
		}
	}
	return nil
}

// checkSubscribe returns a CAPABILITY_MISSING fault for the field if the token does not allow to
// subscribe to the channel. The fault does not repeat the id, which is not validated yet.
func checkSubscribe(p *ident.Principal, channelID, field string) error {
	if p.Covers(ident.Subscribe, channelID) {
		return nil
	}
	f := fault.New(fault.PermissionDenied, fault.CapabilityMissing, "the token has no capability %q for this channel", ident.Subscribe)
	f.Field = field
	return f
}

// prepareConnect bounds the lists of a Connect, and leaves the first of repeated ids.
func prepareConnect(cfg *Config, request proto.Message) error {
	r, _ := request.(*parleyv1.ConnectRequest)
	return prepareLists(cfg, r, "")
}

// prepareSubscribe does the same for the presence in a Subscribe.
func prepareSubscribe(cfg *Config, request proto.Message) error {
	r, _ := request.(*parleyv1.SubscribeRequest)
	if r.GetPresence() == nil {
		return nil
	}
	return prepareLists(cfg, r.GetPresence(), inPresence)
}

func prepareLists(cfg *Config, r *parleyv1.ConnectRequest, prefix string) (err error) {
	if r.Watch, err = atMost(r.GetWatch(), cfg.WatchedUsers, prefix+"watch", "users"); err != nil {
		return err
	}
	r.WatchChannels, err = atMost(r.GetWatchChannels(), cfg.WatchedChannels, prefix+"watch_channels", "channels")
	return err
}

// atMost returns the list without repeats, in order. It returns a LIMIT_EXCEEDED fault for the
// field if more than limit items are left.
func atMost(list []string, limit int, field, plural string) ([]string, error) {
	list = distinct(list)
	if len(list) <= limit {
		return list, nil
	}
	f := fault.New(fault.ResourceExhausted, fault.LimitExceeded, "%s: has %d %s, at most %d are allowed", field, len(list), plural, limit)
	f.Field, f.Limit = field, int64(limit)
	return nil, f
}

// distinct returns the list without repeats, in order. It reuses the list's memory.
func distinct(list []string) []string {
	if len(list) < 2 {
		return list
	}
	seen := make(map[string]struct{}, len(list))
	out := list[:0]
	for _, item := range list {
		if _, ok := seen[item]; !ok {
			seen[item] = struct{}{}
			out = append(out, item)
		}
	}
	return out
}
