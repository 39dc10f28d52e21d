package server_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
)

// TestFullNodeRefusesStreams checks that a node without room for another stream answers NODE_FULL,
// after which a client tries another node. It answers the same to a subject that has too many
// streams on this node.
func TestFullNodeRefusesStreams(t *testing.T) {
	t.Parallel()
	for name, opts := range options {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := attack(t, func(c *config.Config) {
				c.Limits.Streams, c.Limits.StreamsPerSubject = 2, 1
				c.Queues.Consumers, c.Queues.ConsumersPerSubject = 2, 1
			})
			admin := g.QueueAdmin(g.Token)
			if _, err := admin.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: "jobs", Group: &parleyv1.Group{Name: "g"}}); err != nil {
				t.Fatal(err)
			}
			mint := func(subject string) string {
				return g.MintAs(&ident.Principal{
					Subject:  subject,
					Channels: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}},
					Queues:   []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}},
				}, time.Hour)
			}
			for kind, open := range map[string]func(token string) error{
				"Subscribe": func(token string) error {
					s, err := g.Client(token, opts...).Subscribe(t.Context(), &parleyv1.SubscribeRequest{})
					return firstOf(t, s, err)
				},
				"Consume": func(token string) error {
					s, err := g.Queues(token, opts...).Consume(t.Context(), consumingAs("jobs", "g"))
					return firstOf(t, s, err)
				},
			} {
				for _, step := range []struct {
					subject string
					reason  parleyv1.ErrorReason
					limit   int64
				}{
					{"ada", 0, 0},
					{"ada", parleyv1.ErrorReason_ERROR_REASON_NODE_FULL, 1},
					{"bob", 0, 0},
					{"eve", parleyv1.ErrorReason_ERROR_REASON_NODE_FULL, 2},
				} {
					err := open(mint(step.subject))
					if step.reason == 0 {
						if err != nil {
							t.Fatalf("%s by %s: %v", kind, step.subject, err)
						}
						continue
					}
					d := detailOf(t, err)
					if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != step.reason || d.GetLimit() != step.limit ||
						d.GetRetryable() != (step.reason >= 100) {
						t.Errorf("%s by %s: %v, %v", kind, step.subject, err, d)
					}
				}
			}
		})
	}
}

// firstOf reads a stream's first frame and returns the error if there is none. The stream stays
// open until the test ends.
func firstOf[M any](t *testing.T, s *connect.ServerStreamForClient[M], err error) error {
	t.Helper()
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = s.Close() })
	if s.Receive() {
		return nil
	}
	return s.Err()
}
