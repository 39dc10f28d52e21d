package presence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Truth is what Redis had at the end, read without the server's code.
type Truth struct {
	// Settled is what Redis had while the devices stood still, Left after all devices had left.
	Settled Snapshot `json:"settled"`
	Left    Snapshot `json:"left"`
	// Gauges are the figures that each node serves of its streams, after all have ended, by the
	// node's address and the name.
	Gauges map[string]map[string]float64 `json:"gauges"`
}

// Snapshot is what Redis has of presence at one moment.
type Snapshot struct {
	// AtMS is Redis' time before the snapshot, in ms since 1970.
	AtMS int64 `json:"at_ms"`
	// Parts are the members of all users' keys.
	Parts []Part `json:"parts"`
	// Online are the members of the sets of online users.
	Online []string `json:"online"`
	// Members are the users in the sets of nodes.
	Members []Member `json:"members"`
	// Alive are the nodes that have a lease.
	Alive []string `json:"alive"`
	Logs  []Log    `json:"logs"`
}

// Part is a node's part in the state of a user.
type Part struct {
	User    string `json:"user"`
	Node    string `json:"node"`
	State   State  `json:"state"`
	UntilMS int64  `json:"until_ms"`
}

// Member is a user in the set of a node.
type Member struct {
	Node string `json:"node"`
	User string `json:"user"`
}

// Log is the log of a shard of users.
type Log struct {
	Shard string `json:"shard"`
	// Seq is the position of the last entry, according to the shard's meta.
	Seq     int64   `json:"seq"`
	Entries []Entry `json:"entries"`
}

// Entry is an entry of a log.
type Entry struct {
	Seq int64 `json:"seq"`
	// AtMS is Redis' time of the entry, in ms since 1970.
	AtMS int64 `json:"at_ms"`
	// Login is set for an entry about a login. User and State are set for the others.
	Login bool `json:"login,omitempty"`
	// Cause is the number of the cause of a change.
	Cause string `json:"cause,omitempty"`
	User  string `json:"user,omitempty"`
	State State  `json:"state,omitempty"`
}

// readSnapshot reads all keys of presence.
func readSnapshot(ctx context.Context, c *redis.Client) (*Snapshot, error) {
	now, err := c.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{AtMS: now.UnixMilli()}
	keys := c.Scan(ctx, 0, "presence:{*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := s.readKey(ctx, c, keys.Val()); err != nil {
			return nil, fmt.Errorf("%s: %w", keys.Val(), err)
		}
	}
	slices.SortFunc(s.Logs, func(a, b Log) int { return strings.Compare(a.Shard, b.Shard) })
	return s, keys.Err()
}

func (s *Snapshot) readKey(ctx context.Context, c *redis.Client, key string) error {
	shard, rest, _ := strings.Cut(strings.TrimPrefix(key, "presence:{"), "}:")
	kind, name, _ := strings.Cut(rest, ":")
	switch kind {
	case "user":
		return s.readUser(ctx, c, key, name)
	case "online":
		users, err := c.ZRange(ctx, key, 0, -1).Result()
		s.Online = append(s.Online, users...)
		return err
	case "node":
		users, err := c.SMembers(ctx, key).Result()
		for _, user := range users {
			s.Members = append(s.Members, Member{Node: name, User: user})
		}
		return err
	case "alive":
		nodes, err := c.ZRange(ctx, key, 0, -1).Result()
		s.Alive = nodes
		return err
	case "meta":
		return s.readLog(ctx, c, shard)
	default: // log is read with meta; dead and login hold no states
		return nil
	}
}

func (s *Snapshot) readUser(ctx context.Context, c *redis.Client, key, user string) error {
	members, err := c.ZRangeWithScores(ctx, key, 0, -1).Result()
	for _, z := range members {
		text, _ := z.Member.(string)
		node, part, _ := strings.Cut(text, " ")
		s.Parts = append(s.Parts, Part{User: user, Node: node, State: State(part), UntilMS: int64(z.Score)})
	}
	return err
}

// readLog reads the log of a shard, and its end.
func (s *Snapshot) readLog(ctx context.Context, c *redis.Client, shard string) error {
	seq, err := c.HGet(ctx, "presence:{"+shard+"}:meta", "seq").Int64()
	if errors.Is(err, redis.Nil) {
		return nil // the meta of the nodes, or of a shard without an epoch
	}
	if err != nil {
		return err
	}
	lines, err := c.LRange(ctx, "presence:{"+shard+"}:log", 0, -1).Result()
	if err != nil {
		return err
	}
	log := Log{Shard: shard, Seq: seq}
	for _, text := range lines {
		e, err := parseEntry(text)
		if err != nil {
			return err
		}
		log.Entries = append(log.Entries, e)
	}
	s.Logs = append(s.Logs, log)
	return nil
}

// parseEntry parses "<seq> <ms> <cause> <state> <user>", or "<seq> <ms> L ..." for a login.
func parseEntry(text string) (Entry, error) {
	fields := strings.SplitN(text, " ", 5)
	if len(fields) != 5 {
		return Entry{}, fmt.Errorf("entry %q", text)
	}
	seq, seqErr := strconv.ParseInt(fields[0], 10, 64)
	ms, msErr := strconv.ParseInt(fields[1], 10, 64)
	if seqErr != nil || msErr != nil {
		return Entry{}, fmt.Errorf("entry %q", text)
	}
	if fields[2] == "L" {
		return Entry{Seq: seq, AtMS: ms, Login: true}, nil
	}
	return Entry{Seq: seq, AtMS: ms, Cause: fields[2], State: State(fields[3]), User: fields[4]}, nil
}

// states returns the states of the users that are online, as they follow from the parts.
func (s *Snapshot) states() map[string]State {
	states := make(map[string]State)
	for _, p := range s.Parts {
		if p.UntilMS <= s.AtMS {
			continue
		}
		for i := 0; i+1 < len(p.State); i += 2 {
			states[p.User] = states[p.User].with(int(p.State[i]-'0'), p.State[i+1] == 'b')
		}
	}
	return states
}

// empty reports whether no user has anything in Redis but a log and logins.
func (s *Snapshot) empty() bool { return len(s.Parts)+len(s.Online)+len(s.Members) == 0 }
