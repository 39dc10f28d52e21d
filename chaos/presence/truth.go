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
	// AtMS is Redis' time of the snapshot, in ms since 1970.
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

// readKeys returns Redis' time, and each key of presence with all that it has, from one moment.
// Parts and the sets that must match them are different keys, and nodes write both in one step.
var readKeys = redis.NewScript(`
local reply = redis.call('TIME')
local read = {zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, set = {'SMEMBERS'}, list = {'LRANGE', 0, -1}, hash = {'HGETALL'}}
for _, key in ipairs(redis.call('KEYS', 'presence:{*')) do
  local call = read[redis.call('TYPE', key).ok]
  reply[#reply + 1] = key
  reply[#reply + 1] = redis.call(call[1], key, unpack(call, 2))
end
return reply`)

// readSnapshot reads all keys of presence.
func readSnapshot(ctx context.Context, c *redis.Client) (*Snapshot, error) {
	reply, err := readKeys.Run(ctx, c, nil).Slice()
	if err != nil {
		return nil, err
	}
	keys := make(map[string][]string)
	for at := 2; at+1 < len(reply); at += 2 {
		values, _ := reply[at+1].([]any)
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i], _ = v.(string)
		}
		key, _ := reply[at].(string)
		keys[key] = texts
	}
	sec, secErr := strconv.ParseInt(fmt.Sprint(reply[0]), 10, 64)
	us, usErr := strconv.ParseInt(fmt.Sprint(reply[1]), 10, 64)
	s := &Snapshot{AtMS: sec*1000 + us/1000}
	errs := []error{secErr, usErr}
	for key, values := range keys {
		if err := s.add(keys, key, values); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	slices.SortFunc(s.Logs, func(a, b Log) int { return strings.Compare(a.Shard, b.Shard) })
	return s, errors.Join(errs...)
}

// add adds what a key has. keys are all keys.
func (s *Snapshot) add(keys map[string][]string, key string, values []string) error {
	shard, rest, _ := strings.Cut(strings.TrimPrefix(key, "presence:{"), "}:")
	kind, name, _ := strings.Cut(rest, ":")
	switch kind {
	case "user":
		return s.addParts(name, values)
	case "online":
		s.Online = append(s.Online, members(values)...)
	case "node":
		for _, user := range values {
			s.Members = append(s.Members, Member{Node: name, User: user})
		}
	case "alive":
		s.Alive = members(values)
	case "meta":
		return s.addLog(shard, values, keys["presence:{"+shard+"}:log"])
	default: // log is read with meta; dead and login hold no states
	}
	return nil
}

// members returns the members of a sorted set without their scores.
func members(withScores []string) []string {
	var all []string
	for at := 0; at < len(withScores); at += 2 {
		all = append(all, withScores[at])
	}
	return all
}

func (s *Snapshot) addParts(user string, withScores []string) error {
	for at := 0; at+1 < len(withScores); at += 2 {
		node, part, _ := strings.Cut(withScores[at], " ")
		until, err := strconv.ParseFloat(withScores[at+1], 64)
		if err != nil {
			return err
		}
		s.Parts = append(s.Parts, Part{User: user, Node: node, State: State(part), UntilMS: int64(until)})
	}
	return nil
}

// addLog adds the log of a shard, and its end.
func (s *Snapshot) addLog(shard string, meta, lines []string) error {
	at := slices.Index(meta, "seq")
	if at < 0 || at+1 == len(meta) {
		return nil // the meta of the nodes, or of a shard without an epoch
	}
	seq, err := strconv.ParseInt(meta[at+1], 10, 64)
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
