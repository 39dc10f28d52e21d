// Package inspect looks into topics and handles what needs a hand: counts and their history, lists
// of messages, partitions, consumers and dead letters; replaying, purging, trimming, retrying.
//
// What a group keeps about its messages is in the store and is read there. Two things only living
// nodes know: which sessions there are, and which deliveries they hold that have no row yet. They
// come from Consumers. If a node does not answer, its messages that have no row are listed as
// waiting.
//
// Lists go on from a cursor, an opaque text that the caller may seal into a page token. A list
// neither repeats nor leaves out what does not change meanwhile. Pages may be empty although
// more follow: only an empty cursor means the end.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// maxCalls is how many partitions one call works on at once.
	maxCalls = 8
	// DefaultPage is how many items a page has unless the caller says otherwise.
	DefaultPage = 100
	// MaxPage bounds them.
	MaxPage = 1000
	// repeats is how often a write is repeated whose outcome is not known.
	repeats = 2
)

// Store is the part of the store that the package calls.
type Store interface {
	qlog.LookStore
	Lease(ctx context.Context, ref qlog.GroupRef) (holder string, epoch int64, err error)
	Trim(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, n int) (int, error)
}

// Topics finds topics. ErrNoTopic or TOPIC_NOT_FOUND.
type Topics interface {
	Topic(ctx context.Context, name string) (*qlog.Topic, error)
}

// Consumers asks all nodes about sessions. Safe for concurrent use.
type Consumers interface {
	// Sessions returns the sessions of a group that have the topic, and the nodes that did not answer.
	Sessions(ctx context.Context, topic, group string) (sessions []qlog.SessionInfo, missing []string, err error)
	// Retry has the holder of the lease make entries due now that wait for a retry, and returns for
	// how many it did. A caller that finds no holder becomes it.
	Retry(ctx context.Context, ref qlog.GroupRef, ids []qlog.ID) (int, error)
}

// Producer produces dead letters to another topic.
type Producer interface {
	// ProduceLetters stores dead letters as new messages of a topic, for all of its groups. It
	// returns an error for each, nil if the message is stored, by this call or an earlier one with
	// the same key.
	ProduceLetters(ctx context.Context, topic string, letters []KeyedLetter) ([]error, error)
}

// KeyedLetter is a full dead letter and the idempotency key under which it is produced.
type KeyedLetter struct {
	Key string
	qlog.Letter
}

// Hints notifies consumers where there may be something again. It must not block.
type Hints interface {
	Ready(topic string, partition int)
}

// Config sets up a Service. Store, Topics and Consumers must be set.
type Config struct {
	Store     Store
	Topics    Topics
	Consumers Consumers
	// Digest returns the digest of a session's ID that SessionInfo has.
	Digest func(session string) string
	// Producer is needed to replay to another topic.
	Producer Producer
	// Hints may be nil.
	Hints Hints
	// Local returns the topics of which this node has sessions; may be nil.
	Local func() []string
	// Meter and Owned are for the gauges (see NewGauges), which exist while the Service runs; a nil
	// Meter has none.
	Meter metric.Meter
	Owned func(ctx context.Context) []qlog.Ref
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Service looks into topics, and records their history while it runs. All its errors that a client
// may see are faults. Safe for concurrent use. It is a lifecycle.Service; its other methods also
// work before Start.
type Service struct {
	cfg     Config
	life    lifecycle.Base
	history history
}

// New creates a Service.
func New(c Config) *Service {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Digest == nil {
		c.Digest = func(string) string { return "" }
	}
	return &Service{cfg: c}
}

// topic returns a topic that is complete. TOPIC_NOT_FOUND.
func (s *Service) topic(ctx context.Context, name string) (*qlog.Topic, error) {
	t, err := s.cfg.Topics.Topic(ctx, name)
	if err != nil {
		return nil, lookFault(err)
	}
	if t.State != qlog.Live {
		return nil, noTopic("topic")
	}
	return t, nil
}

// group returns a topic that has a group. TOPIC_NOT_FOUND, GROUP_NOT_FOUND.
func (s *Service) group(ctx context.Context, topic, group string) (*qlog.Topic, error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	if t.Group(group) == nil {
		return nil, noGroup()
	}
	return t, nil
}

func noTopic(field string) error {
	e := fault.New(fault.NotFound, fault.TopicNotFound, "there is no such topic")
	e.Field = field
	return e
}

func noGroup() error {
	e := fault.New(fault.NotFound, fault.GroupNotFound, "the topic has no such consumer group")
	e.Field = "group"
	return e
}

func noMessage() error {
	e := fault.New(fault.NotFound, fault.MessageNotFound, "no such message is stored")
	e.Field = "message_id"
	return e
}

func badCursor() error {
	e := fault.New(fault.InvalidArgument, fault.PageTokenInvalid, "page_token: not a place in this list")
	e.Field = "page_token"
	return e
}

// confirmed refuses what removes things permanently unless confirm is the topic's name.
func confirmed(confirm, topic string) error {
	if confirm == topic {
		return nil
	}
	e := fault.New(fault.FailedPrecondition, fault.ConfirmationRequired, "confirm: must be the topic's name")
	e.Field = "confirm"
	return e
}

// lookFault converts an error of a call that changes nothing.
func lookFault(err error) error {
	var f *fault.Error
	switch {
	case err == nil, errors.As(err, &f):
		return err
	case errors.Is(err, qlog.ErrNoTopic):
		return noTopic("topic")
	case errors.Is(err, qlog.ErrNoGroup):
		return noGroup()
	case errors.Is(err, qlog.ErrNoMessage):
		return noMessage()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed")
	default:
		return err
	}
}

// writeFault converts an error of a call that may have changed something.
func writeFault(err error) error {
	switch {
	case errors.Is(err, qlog.ErrFull):
		return fault.Wrap(err, fault.ResourceExhausted, fault.TopicFull, "the partition is full; what was replayed before stays so")
	case errors.Is(err, qlog.ErrNoMemory):
		return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store is out of memory; try again later")
	case errors.Is(err, qlog.ErrUnknownOutcome):
		return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "it is not known whether it was done; try again")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; it may have been done in part")
	default:
		return lookFault(err)
	}
}

// repeat calls fn again if its outcome is not known.
func repeat(fn func() error) error {
	for n := 0; ; n++ {
		err := fn()
		if !errors.Is(err, qlog.ErrUnknownOutcome) || n >= repeats {
			return err
		}
	}
}

// each calls fn with 0 to n-1, some at a time, and returns the first error, which ends the rest.
func each(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(maxCalls)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() error { return fn(ctx, i) })
	}
	return calls.Wait()
}

// pageSize returns how many items a page has.
func pageSize(n int) int {
	if n <= 0 {
		return DefaultPage
	}
	return min(n, MaxPage)
}

// ready asks consumers to look into a partition.
func (s *Service) ready(topic string, partition int) {
	if s.cfg.Hints != nil {
		s.cfg.Hints.Ready(topic, partition)
	}
}
