package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
)

var (
	topicInsert = newScript("topic_insert", 1)
	topicUpdate = newScript("topic_update", 1)
	topicRemove = newScript("topic_remove", 1)
)

// InsertTopic implements queue.TopicStore. The settings come first, so that what is registered has some. A crash between the
// two is healed by the repeat, which finds the settings and registers them.
func (s *Store) InsertTopic(ctx context.Context, t *queue.Topic) (existing *queue.Topic, err error) {
	making := *t
	making.State = queue.Making
	doc, err := encodeTopic(&making)
	if err != nil {
		return nil, err
	}
	there, err := s.write(ctx, topicInsert, []string{s.keys.topic(t.Name)}, t.UID, t.Version, doc)
	if err != nil {
		return nil, fmt.Errorf("insert topic %s: %w", t.Name, err)
	}
	if err := s.client.SAdd(ctx, s.keys.registry(), t.Name).Err(); err != nil {
		return nil, fmt.Errorf("register topic %s: %w", t.Name, writeError(err))
	}
	text, ok := there.(string)
	if !ok {
		return nil, nil //nolint:nilnil // there was none: see the contract
	}
	if existing, err = decodeTopic(text); err != nil {
		return nil, fmt.Errorf("topic %s: %w", t.Name, err)
	}
	return existing, queue.ErrTopicExists
}

// UpdateTopic implements queue.TopicStore.
func (s *Store) UpdateTopic(ctx context.Context, t *queue.Topic) error {
	next := *t
	next.Version++
	doc, err := encodeTopic(&next)
	if err != nil {
		return err
	}
	if _, err := s.write(ctx, topicUpdate, []string{s.keys.topic(t.Name)}, t.UID, t.Version, next.Version, doc); err != nil {
		return fmt.Errorf("update topic %s: %w", t.Name, err)
	}
	return nil
}

// RemoveTopic implements queue.TopicStore. The registration goes first, for a crash in between leaves a topic that is found by
// its name, and whose removal is finished by a repeat; a registration without a topic would be found by everybody. It goes
// only if no later topic has the name.
func (s *Store) RemoveTopic(ctx context.Context, t *queue.Topic) error {
	there, err := s.Topic(ctx, t.Name)
	switch {
	case errors.Is(err, queue.ErrNoTopic):
	case err != nil:
		return err
	case there.UID != t.UID:
		return nil
	default:
	}
	if err := s.client.SRem(ctx, s.keys.registry(), t.Name).Err(); err != nil {
		return fmt.Errorf("remove topic %s from the registry: %w", t.Name, writeError(err))
	}
	gone, err := s.write(ctx, topicRemove, []string{s.keys.topic(t.Name)}, t.UID)
	if err != nil {
		return fmt.Errorf("remove topic %s: %w", t.Name, err)
	}
	if gone == int64(1) {
		return nil
	}
	// Another has made the topic anew in between, and its registration may be what was removed.
	if err := s.client.SAdd(ctx, s.keys.registry(), t.Name).Err(); err != nil {
		return fmt.Errorf("register topic %s: %w", t.Name, writeError(err))
	}
	return nil
}

// Topic implements queue.TopicStore.
func (s *Store) Topic(ctx context.Context, name string) (*queue.Topic, error) {
	doc, err := s.client.HGet(ctx, s.keys.topic(name), "doc").Result()
	if errors.Is(err, redis.Nil) {
		return nil, queue.ErrNoTopic
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, readError(err))
	}
	t, err := decodeTopic(doc)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	return t, nil
}

// TopicNames implements queue.TopicStore.
func (s *Store) TopicNames(ctx context.Context) ([]string, error) {
	names, err := s.client.SMembers(ctx, s.keys.registry()).Result()
	if err != nil {
		return nil, fmt.Errorf("names of topics: %w", readError(err))
	}
	slices.Sort(names)
	return names, nil
}
