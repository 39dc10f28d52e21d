package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
)

// ServerInfo is the part of GetServerInfo's response that Config and the schema do not state.
type ServerInfo struct {
	// Version is the build's version. If it is empty, clients get `devel`.
	Version string
	// StreamsPerSubject bounds the live Subscribe streams of one subject on this node,
	// ConsumersPerSubject its live Consume streams.
	StreamsPerSubject, ConsumersPerSubject int
}

// serverService implements parley.v1.ServerService.
type serverService struct {
	cfg  Config
	deps Deps
}

var _ parleyv1connect.ServerServiceHandler = (*serverService)(nil)

// schemaLimit returns the schema's limit on a field of m: bytes of a string or bytes field, or
// items of a list.
func schemaLimit(m proto.Message, field protoreflect.Name) int32 {
	rules := rulesOf(m.ProtoReflect().Descriptor(), field)
	most := max(rules.GetString().GetMaxBytes(), rules.GetBytes().GetMaxLen(), rules.GetRepeated().GetMaxItems())
	return int32(most) //nolint:gosec // the schema's are small
}

// sessionContent returns the maximum number of bytes of the content of a session's message.
func (c *Config) sessionContent() int32 {
	if c.SessionContentBytes > 0 {
		return int32(c.SessionContentBytes) //nolint:gosec // validated by config
	}
	return schemaLimit(&parleyv1.AppendSessionMessageRequest{}, "content")
}

// checkSessionContent returns a fault for content that is longer than the configured limit.
func (c *Config) checkSessionContent(content string) error {
	limit := c.sessionContent()
	if len(content) <= int(limit) {
		return nil
	}
	return fault.Invalid("content", int64(limit), "content: has %d bytes, and at most %d are allowed", len(content), limit)
}

// GetServerInfo implements parleyv1connect.ServerServiceHandler.
func (s *serverService) GetServerInfo(
	context.Context, *parleyv1.GetServerInfoRequest,
) (*parleyv1.GetServerInfoResponse, error) {
	resp := &parleyv1.GetServerInfoResponse{
		Version:  s.deps.Info.Version,
		Features: []parleyv1.ServerFeature{parleyv1.ServerFeature_SERVER_FEATURE_QUEUES},
		Limits: &parleyv1.ServerLimits{
			MaxContentBytes:        schemaLimit(&parleyv1.SendMessageRequest{}, "content"),
			MaxSessionContentBytes: s.cfg.sessionContent(),
			MaxBatchMessages:       schemaLimit(&parleyv1.SendMessagesRequest{}, "messages"),
			MaxChannelsPerStream:   int32(s.cfg.ChannelsPerStream),       //nolint:gosec // validated by config
			MaxStreamsPerSubject:   int32(s.deps.Info.StreamsPerSubject), //nolint:gosec // validated by config
			MaxPayloadBytes:        schemaLimit(&parleyv1.QueueMessage{}, "payload"),
			MaxProduceMessages:     schemaLimit(&parleyv1.ProduceRequest{}, "messages"),
			MaxConsumersPerSubject: int32(s.deps.Info.ConsumersPerSubject), //nolint:gosec // validated by config
			HeartbeatInterval:      durationpb.New(s.cfg.HeartbeatInterval),
		},
	}
	if resp.GetVersion() == "" {
		resp.Version = "devel"
	}
	if s.cfg.Reflection {
		resp.Features = append(resp.Features, parleyv1.ServerFeature_SERVER_FEATURE_REFLECTION)
	}
	return resp, nil
}
