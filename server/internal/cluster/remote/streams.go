package remote

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/stream"
)

// holderWait bounds the wait for an answer of the node that holds a stream.
const holderWait = 2 * time.Second

var updateStream = cluster.Method[*clusterv1.UpdateStreamRequest, *emptypb.Empty]{Name: "stream", Timeout: holderWait}

// StreamHub changes this node's streams. *fanout.Hub implements it.
type StreamHub interface {
	Update(streamID, subject string, c fanout.Change) error
}

// CheckAdd returns a fault if the subject may not add one of the channels to a stream.
type CheckAdd func(ctx context.Context, subject string, add []fanout.Position) error

// Streams changes live streams, on whichever node they are. Other nodes may change this node's
// streams between Start and Stop. Safe for concurrent use.
type Streams struct {
	*cluster.Handlers

	endpoint *cluster.Endpoint
	hub      StreamHub
	check    CheckAdd
}

// NewStreams creates a Streams over this node's hub. Its stream ids must end with the node's id.
// Streams calls check before another node changes a stream of this node: the calling node has
// checked too, but a stalled link may have delayed its call since.
func NewStreams(endpoint *cluster.Endpoint, hub StreamHub, check CheckAdd) *Streams {
	s := &Streams{Handlers: endpoint.Handlers(), endpoint: endpoint, hub: hub, check: check}
	cluster.Handle(s.Handlers, updateStream, s.serve)
	return s
}

// Update changes the subject's live stream, as fanout.Stream.Update does. The caller must have
// checked that the subject may read the channels. It fails with STREAM_NOT_FOUND if the stream does
// not exist or belongs to another subject. It fails with Unavailable if the stream's node can't be
// reached, and with OUTCOME_UNKNOWN if that node may have made the change. The change may be
// repeated.
func (s *Streams) Update(ctx context.Context, streamID, subject string, c fanout.Change) error {
	node := cluster.StreamNode(streamID)
	if node == s.endpoint.ID() {
		return s.hub.Update(streamID, subject, c)
	}
	_, err := cluster.Call(ctx, s.endpoint, node, updateStream, updateToWire(streamID, subject, c))
	if errors.Is(err, cluster.ErrNodeGone) {
		return stream.NotFound()
	}
	return err
}

// serve changes a stream of this node for another node.
func (s *Streams) serve(ctx context.Context, w *clusterv1.UpdateStreamRequest) (*emptypb.Empty, error) {
	c := updateFromWire(w)
	if err := s.check(ctx, w.GetSubject(), c.Add); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.hub.Update(w.GetStreamId(), w.GetSubject(), c)
}

func updateToWire(streamID, subject string, c fanout.Change) *clusterv1.UpdateStreamRequest {
	w := &clusterv1.UpdateStreamRequest{StreamId: streamID, Subject: subject, Remove: c.Remove, Token: tokenToWire(c.Token)}
	for _, p := range c.Add {
		w.Add = append(w.Add, &clusterv1.Position{
			ChannelId: p.ChannelID, AfterSeq: p.After, Epoch: p.Epoch, Exempt: p.Exempt, Member: p.Member,
		})
	}
	return w
}

func updateFromWire(w *clusterv1.UpdateStreamRequest) fanout.Change {
	c := fanout.Change{Remove: w.GetRemove(), Token: tokenFromWire(w.GetSubject(), w.GetToken())}
	for _, p := range w.GetAdd() {
		c.Add = append(c.Add, fanout.Position{
			ChannelID: p.GetChannelId(), After: p.AfterSeq, Epoch: p.GetEpoch(), Exempt: p.GetExempt(), Member: p.GetMember(),
		})
	}
	return c
}

// tokenToWire returns what a stream needs of its token, or nil for nil.
func tokenToWire(p *ident.Principal) *clusterv1.Token {
	if p == nil {
		return nil
	}
	w := &clusterv1.Token{
		Channels: capabilitiesToWire(p.Channels), Members: capabilitiesToWire(p.Members), Sessions: capabilitiesToWire(p.Sessions),
		Key: p.Key,
	}
	if !p.IssuedAt.IsZero() {
		w.IssueTimeMs = p.IssuedAt.UnixMilli()
	}
	if !p.Expires.IsZero() {
		w.ExpireTimeMs = p.Expires.UnixMilli()
	}
	return w
}

func tokenFromWire(subject string, w *clusterv1.Token) *ident.Principal {
	if w == nil {
		return nil
	}
	p := &ident.Principal{
		Subject: subject, Channels: capabilitiesFromWire(w.GetChannels()), Members: capabilitiesFromWire(w.GetMembers()),
		Sessions: capabilitiesFromWire(w.GetSessions()), Key: w.GetKey(),
	}
	if ms := w.GetIssueTimeMs(); ms != 0 {
		p.IssuedAt = time.UnixMilli(ms)
	}
	if ms := w.GetExpireTimeMs(); ms != 0 {
		p.Expires = time.UnixMilli(ms)
	}
	return p
}

func capabilitiesToWire(all []ident.Capability) []*clusterv1.Capability {
	out := make([]*clusterv1.Capability, len(all))
	for i, c := range all {
		out[i] = &clusterv1.Capability{Pattern: c.Pattern}
		for _, a := range c.Actions {
			out[i].Actions = append(out[i].Actions, string(a))
		}
	}
	return out
}

func capabilitiesFromWire(all []*clusterv1.Capability) []ident.Capability {
	out := make([]ident.Capability, len(all))
	for i, c := range all {
		out[i] = ident.Capability{Pattern: c.GetPattern()}
		for _, a := range c.GetActions() {
			out[i].Actions = append(out[i].Actions, ident.Action(a))
		}
	}
	return out
}
