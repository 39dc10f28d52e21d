package redisqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/queue"
)

var groupBeat = newScript("group_beat", 1)

// Beat implements queue.GroupStore. It may be repeated.
func (s *Store) Beat(ctx context.Context, topic, group string, mine []queue.Member, ttl time.Duration) ([]queue.Member, error) {
	args := append(make([]any, 0, 1+4*len(mine)), ttl.Milliseconds())
	for i := range mine {
		m := &mine[i]
		args = append(args, m.StreamID, m.Joined, m.NodeID, m.Consumer)
	}
	reply, err := s.write(ctx, groupBeat, []string{s.keys.members(topic, group)}, args...)
	if err != nil {
		return nil, fmt.Errorf("members of %s in %s: %w", group, topic, err)
	}
	var members []queue.Member
	for r := readReply(reply); r.more(); {
		m, err := parseMember(r.text(), r.text())
		if err != nil {
			return nil, fmt.Errorf("members of %s in %s: %w", group, topic, err)
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b queue.Member) int {
		return cmp.Or(cmp.Compare(a.Joined, b.Joined), cmp.Compare(a.StreamID, b.StreamID))
	})
	return members, nil
}

// parseMember reads "<expiry ms> <joined µs> <node> <consumer>".
func parseMember(session, value string) (queue.Member, error) {
	parts := strings.SplitN(value, " ", 4)
	if len(parts) != 4 {
		return queue.Member{}, fmt.Errorf("member %s is %q", session, value)
	}
	joined, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return queue.Member{}, fmt.Errorf("member %s is %q", session, value)
	}
	return queue.Member{StreamID: session, Consumer: parts[3], NodeID: parts[2], Joined: joined}, nil
}

// Leave implements queue.GroupStore. It may be repeated.
func (s *Store) Leave(ctx context.Context, topic, group string, sessionIDs []string) error {
	if len(sessionIDs) == 0 {
		return nil
	}
	if err := s.client.HDel(ctx, s.keys.members(topic, group), sessionIDs...).Err(); err != nil {
		return fmt.Errorf("take members off %s in %s: %w", group, topic, writeError(err))
	}
	return nil
}
