package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var topicScript = newScript("topic", 1)

// groupField is what the fields of groups' documents begin with.
const groupField = "g:"

// InsertTopic implements qlog.TopicStore. The settings come first, so that a registered topic has
// some. A crash between the two is healed by the repeat, which finds the settings and registers
// them.
func (s *Store) InsertTopic(ctx context.Context, t *qlog.Topic) (existing *qlog.Topic, err error) {
	making := *t
	making.State = qlog.Making
	err = s.insert(ctx, &making)
	exists := errors.Is(err, qlog.ErrTopicExists)
	if err != nil && !exists {
		return nil, fmt.Errorf("insert topic %s: %w", t.Name, err)
	}
	if err := s.client.SAdd(ctx, s.keys.registry(), t.Name).Err(); err != nil {
		return nil, fmt.Errorf("register topic %s: %w", t.Name, writeError(err))
	}
	if !exists {
		return nil, nil //nolint:nilnil // there was none: see the contract
	}
	if existing, err = s.Topic(ctx, t.Name); err != nil {
		return nil, err
	}
	return existing, qlog.ErrTopicExists
}

// insert stores the settings of a topic of which none are stored. ErrTopicExists.
func (s *Store) insert(ctx context.Context, t *qlog.Topic) error {
	doc, err := encodeTopic(t)
	if err != nil {
		return err
	}
	args := []any{t.UID, "", t.Version, "doc", doc}
	for i := range t.Groups {
		if doc, err = encodeGroup(&t.Groups[i]); err != nil {
			return err
		}
		args = append(args, groupField+t.Groups[i].Name, doc)
	}
	_, err = s.write(ctx, topicScript, []string{s.keys.topic(t.Name)}, args...)
	return err
}

// UpdateTopic implements qlog.TopicStore.
func (s *Store) UpdateTopic(ctx context.Context, t *qlog.Topic) error {
	doc, err := encodeTopic(t)
	if err != nil {
		return err
	}
	return s.setField(ctx, t, "doc", doc)
}

// PutGroup implements qlog.TopicStore.
func (s *Store) PutGroup(ctx context.Context, t *qlog.Topic, g qlog.Group) error {
	doc, err := encodeGroup(&g)
	if err != nil {
		return err
	}
	return s.setField(ctx, t, groupField+g.Name, doc)
}

// DeleteGroup implements qlog.TopicStore.
func (s *Store) DeleteGroup(ctx context.Context, t *qlog.Topic, group string) error {
	return s.setField(ctx, t, groupField+group, nil)
}

func (s *Store) setField(ctx context.Context, t *qlog.Topic, field string, doc []byte) error {
	if _, err := s.write(ctx, topicScript, []string{s.keys.topic(t.Name)}, t.UID, t.Version, t.Version+1, field, doc); err != nil {
		return fmt.Errorf("update %s of topic %s: %w", field, t.Name, err)
	}
	return nil
}

// RemoveTopic implements qlog.TopicStore. The registration goes first, because after a crash in
// between everybody who knows the name finds the topic. It goes only if no later topic has the
// name.
func (s *Store) RemoveTopic(ctx context.Context, t *qlog.Topic) error {
	there, err := s.read(ctx, t.Name)
	switch {
	case errors.Is(err, qlog.ErrNoTopic):
	case err != nil:
		return err
	case there.UID != t.UID:
		return nil
	default:
	}
	if err := s.client.SRem(ctx, s.keys.registry(), t.Name).Err(); err != nil {
		return fmt.Errorf("remove topic %s from the registry: %w", t.Name, writeError(err))
	}
	gone, err := s.write(ctx, topicScript, []string{s.keys.topic(t.Name)}, t.UID, t.Version, "")
	if err != nil {
		return fmt.Errorf("remove topic %s: %w", t.Name, err)
	}
	if gone == int64(1) {
		return nil
	}
	// Another created the topic anew in between, and its registration may be what was removed.
	if err := s.client.SAdd(ctx, s.keys.registry(), t.Name).Err(); err != nil {
		return fmt.Errorf("register topic %s: %w", t.Name, writeError(err))
	}
	return nil
}

// Topic implements qlog.TopicStore.
func (s *Store) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	t, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	registered, err := s.client.SIsMember(ctx, s.keys.registry(), name).Result()
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, readError(err))
	}
	// While the topic is being removed it is not registered.
	if !registered && t.State != qlog.Removing {
		if err := s.client.SAdd(ctx, s.keys.registry(), name).Err(); err != nil {
			s.log.WarnContext(ctx, "a topic is missing in the registry and cannot be registered", "topic", name, "error", err)
		}
	}
	return t, nil
}

// read returns the stored settings. ErrNoTopic.
func (s *Store) read(ctx context.Context, name string) (*qlog.Topic, error) {
	fields, err := s.client.HGetAll(ctx, s.keys.topic(name)).Result()
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, readError(err))
	}
	if fields["doc"] == "" {
		return nil, qlog.ErrNoTopic
	}
	t, err := decodeTopic(fields["doc"])
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	t.Name, t.UID = name, fields["uid"]
	if t.Version, err = strconv.ParseInt(fields["version"], 10, 64); err != nil {
		return nil, fmt.Errorf("version of topic %s: %w", name, err)
	}
	for field, doc := range fields {
		group, ok := strings.CutPrefix(field, groupField)
		if !ok {
			continue
		}
		g, err := decodeGroup(group, doc)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", name, err)
		}
		t.Groups = append(t.Groups, g)
	}
	sortGroups(t.Groups)
	return t, nil
}

func sortGroups(groups []qlog.Group) {
	slices.SortFunc(groups, func(a, b qlog.Group) int { return strings.Compare(a.Name, b.Name) })
}

// TopicNames implements qlog.TopicStore.
func (s *Store) TopicNames(ctx context.Context) ([]string, error) {
	names, err := s.client.SMembers(ctx, s.keys.registry()).Result()
	if err != nil {
		return nil, fmt.Errorf("names of topics: %w", readError(err))
	}
	slices.Sort(names)
	return names, nil
}

// maxPartitions is the most partitions that a topic can have.
const maxPartitions = 256

// RestoreTopic implements qlog.TopicStore.
func (s *Store) RestoreTopic(ctx context.Context, name string) (*qlog.Topic, error) {
	if t, err := s.read(ctx, name); !errors.Is(err, qlog.ErrNoTopic) {
		return t, err
	}
	registered, err := s.client.SIsMember(ctx, s.keys.registry(), name).Result()
	if err != nil {
		return nil, fmt.Errorf("restore topic %s: %w", name, readError(err))
	}
	if !registered {
		return nil, qlog.ErrNoTopic
	}
	copied, err := s.newestCopy(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("restore topic %s: %w", name, err)
	}
	if err := s.insert(ctx, copied); err != nil && !errors.Is(err, qlog.ErrTopicExists) {
		return nil, fmt.Errorf("restore topic %s: %w", name, err)
	}
	s.log.WarnContext(ctx, "the settings of a topic were lost and have been restored from a partition", "topic", name, "uid", copied.UID)
	return s.read(ctx, name)
}

// newestCopy returns the newest copy of a topic's settings that one of its partitions has.
func (s *Store) newestCopy(ctx context.Context, name string) (*qlog.Topic, error) {
	replies := make([]*redis.SliceCmd, maxPartitions)
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range replies {
			replies[i] = p.HMGet(ctx, s.keys.meta(qlog.Ref{Topic: name, Partition: i}), "doc")
		}
		return nil
	}); err != nil {
		return nil, readError(err)
	}
	var newest *qlog.Topic
	for _, r := range replies {
		text, _ := r.Val()[0].(string)
		if text == "" {
			continue
		}
		t, err := decodeCopy(text)
		if err != nil {
			s.log.WarnContext(ctx, "a partition's copy of its topic's settings cannot be read", "topic", name, "error", err)
			continue
		}
		// A partition may be left over from an earlier topic of the name.
		if newest == nil || t.CreatedAt.After(newest.CreatedAt) || t.UID == newest.UID && t.Version > newest.Version {
			newest = t
		}
	}
	if newest == nil {
		return nil, qlog.ErrNoTopic
	}
	return newest, nil
}
