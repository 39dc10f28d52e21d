package queue

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// EnsureGroup creates a consumer group, or if it exists changes the named fields of its settings,
// and returns it. Without fields an existing group is not changed.
func (a *Admin) EnsureGroup(ctx context.Context, topic string, g *Group, fields ...string) (*Group, error) {
	group, err := a.CreateGroup(ctx, topic, g)
	switch {
	case !errors.Is(err, parley.ErrGroupExists):
		return group, err
	case len(fields) == 0:
		return a.Group(ctx, topic, g.GetName())
	default:
		return a.UpdateGroup(ctx, topic, g, fields...)
	}
}

// CreateGroup creates a consumer group and returns it. If the group exists, also because an earlier
// attempt of this call has created it, CreateGroup returns parley.ErrGroupExists and changes
// nothing.
func (a *Admin) CreateGroup(ctx context.Context, topic string, g *Group) (*Group, error) {
	res, err := adminCall(ctx, a, "CreateGroup",
		func(s *link.Services) func(context.Context, *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
			return s.Admin.CreateGroup
		}, &parleyv1.CreateGroupRequest{Topic: topic, Group: g})
	return res.GetGroup(), err
}

// UpdateGroup changes the named fields of a group's settings and returns the group. The fields are
// some of order, retry, ack_timeout, handler_timeout, max_run_time and resume_grace.
func (a *Admin) UpdateGroup(ctx context.Context, topic string, g *Group, fields ...string) (*Group, error) {
	res, err := adminCall(ctx, a, "UpdateGroup",
		func(s *link.Services) func(context.Context, *parleyv1.UpdateGroupRequest) (*parleyv1.UpdateGroupResponse, error) {
			return s.Admin.UpdateGroup
		}, &parleyv1.UpdateGroupRequest{Topic: topic, Group: g, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}})
	return res.GetGroup(), err
}

// DeleteGroup deletes a consumer group. Its dead letters stay. It returns
// parley.ErrConfirmationRequired if confirm is not the group's name, and parley.ErrGroupNotFound if
// there is no such group, also because an earlier attempt of this call has deleted it.
func (a *Admin) DeleteGroup(ctx context.Context, topic, group, confirm string) error {
	_, err := adminCall(ctx, a, "DeleteGroup",
		func(s *link.Services) func(context.Context, *parleyv1.DeleteGroupRequest) (*parleyv1.DeleteGroupResponse, error) {
			return s.Admin.DeleteGroup
		}, &parleyv1.DeleteGroupRequest{Topic: topic, Group: group, Confirm: confirm})
	return err
}

// Group returns a consumer group.
func (a *Admin) Group(ctx context.Context, topic, group string) (*Group, error) {
	res, err := adminCall(ctx, a, "GetGroup",
		func(s *link.Services) func(context.Context, *parleyv1.GetGroupRequest) (*parleyv1.GetGroupResponse, error) {
			return s.Admin.GetGroup
		}, &parleyv1.GetGroupRequest{Topic: topic, Group: group})
	return res.GetGroup(), err
}

// Groups returns the consumer groups of a topic, ordered by name.
func (a *Admin) Groups(ctx context.Context, topic string) ([]*Group, error) {
	res, err := adminCall(ctx, a, "ListGroups",
		func(s *link.Services) func(context.Context, *parleyv1.ListGroupsRequest) (*parleyv1.ListGroupsResponse, error) {
			return s.Admin.ListGroups
		}, &parleyv1.ListGroupsRequest{Topic: topic})
	return res.GetGroups(), err
}

// PauseGroup pauses the deliveries to a group. Deliveries in flight are not affected. ResumeGroup
// ends the pause.
func (a *Admin) PauseGroup(ctx context.Context, topic, group string) (*Group, error) {
	return a.setGroupPaused(ctx, topic, group, true)
}

// ResumeGroup ends the pause of a group.
func (a *Admin) ResumeGroup(ctx context.Context, topic, group string) (*Group, error) {
	return a.setGroupPaused(ctx, topic, group, false)
}

func (a *Admin) setGroupPaused(ctx context.Context, topic, group string, paused bool) (*Group, error) {
	res, err := adminCall(ctx, a, "SetGroupPaused",
		func(s *link.Services) func(context.Context, *parleyv1.SetGroupPausedRequest) (*parleyv1.SetGroupPausedResponse, error) {
			return s.Admin.SetGroupPaused
		}, &parleyv1.SetGroupPausedRequest{Topic: topic, Group: group, Paused: paused})
	return res.GetGroup(), err
}

// SeekGroup moves a consumer group to another position of the topic. The messages in flight are
// cancelled for their handlers, and retries are dropped. It returns parley.ErrInvalidField for a
// nil Start.
func (a *Admin) SeekGroup(ctx context.Context, topic, group string, start Start) error {
	_, err := adminCall(ctx, a, "SeekGroup",
		func(s *link.Services) func(context.Context, *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
			return s.Admin.SeekGroup
		}, &parleyv1.SeekGroupRequest{Topic: topic, Group: group, Start: start})
	return err
}
