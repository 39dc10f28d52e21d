package queue_test

import (
	"context"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/store/redisqueue"
)

// silentStore stores a topic and does not say so.
type silentStore struct {
	*redisqueue.Store

	tries int
}

func (s *silentStore) InsertTopic(ctx context.Context, t *queue.Topic) (*queue.Topic, error) {
	s.tries++
	if existing, err := s.Store.InsertTopic(ctx, t); err != nil {
		return existing, err
	}
	return nil, queue.ErrUnknownOutcome
}

// deafStore does not answer.
type deafStore struct {
	*redisqueue.Store

	tries int
}

func (s *deafStore) InsertTopic(context.Context, *queue.Topic) (*queue.Topic, error) {
	s.tries++
	return nil, queue.ErrUnknownOutcome
}

// A topic whose storing was not answered is found at the second try. A store that does not answer is not asked on and on, and
// what became of the topic is told to be unknown.
func TestCreateTopicWithoutAnswers(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	silent := &silentStore{Store: r.store}
	admin := queue.NewAdmin(queue.AdminConfig{Store: silent, Catalog: queue.NewCatalog(silent)})
	if _, err := admin.CreateTopic(t.Context(), queue.Topic{Name: "silent", Partitions: 1}); err != nil || silent.tries != 2 {
		t.Errorf("after %d tries: %v", silent.tries, err)
	}
	deaf := &deafStore{Store: r.store}
	admin = queue.NewAdmin(queue.AdminConfig{Store: deaf, Catalog: queue.NewCatalog(deaf)})
	_, err := admin.CreateTopic(t.Context(), queue.Topic{Name: "deaf", Partitions: 1})
	if !fault.Is(err, fault.OutcomeUnknown) || deaf.tries != 2 {
		t.Errorf("after %d tries: %v", deaf.tries, err)
	}
}
