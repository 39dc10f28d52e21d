package rpc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"buf.build/go/protovalidate"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

// Consumers delivers messages to consumers. *consume.Service implements it and documents the
// methods. The caller's capability has been checked.
type Consumers interface {
	Open(ctx context.Context, r consume.OpenRequest) (*consume.Stream, consume.Started, error)
	Close(s *consume.Stream)
	Settle(ctx context.Context, subject, sessionID string, items []consume.Settlement) ([]error, error)
	Extend(ctx context.Context, subject, sessionID string, x consume.Extension) ([]error, error)
	Update(ctx context.Context, subject, sessionID string, u consume.Update) (expires time.Time, err error)
	Receive(ctx context.Context, r consume.ReceiveRequest) (consume.Received, error)
	Leave(ctx context.Context, subject, sessionID string) error
}

var _ Consumers = (*consume.Service)(nil)

// queueService implements parley.v1.QueueService. Interceptors have validated the
// requests, except for the items of batches.
type queueService struct {
	parleyv1connect.UnimplementedQueueServiceHandler

	cfg       Config
	deps      Deps
	validator protovalidate.Validator
}

var _ parleyv1connect.QueueServiceHandler = (*queueService)(nil)

// checkTopics returns a fault if one of the topics has a reserved name.
func checkTopics(field string, topics []string) error {
	for i, topic := range topics {
		if strings.HasPrefix(topic, reservedPrefix) {
			return checkNotReserved(fmt.Sprintf("%s[%d]", field, i), topic)
		}
	}
	return nil
}
