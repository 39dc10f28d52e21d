package natsbus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// streamName is the stream's name and the first token of its subjects.
	streamName = "message_change_events"
	// The prefixes of subjects for broadcasts, for requests to one node, for typing notices and for
	// the texts of open messages. The JetStream stream must not include them.
	topicPrefix  = "parley.all."
	nodePrefix   = "parley.node."
	typingPrefix = "parley.typing."
	deltaPrefix  = "parley.delta."
)

// channelIDs and words match valid tokens of a subject: channel ids, those of sessions included,
// and the names of topics and nodes. NATS accepts nearly anything: a channel id of `*` or `>`, or
// one with a dot, would reach other channels or be received by them.
var (
	channelIDs = regexp.MustCompile(`^~?[A-Za-z0-9_-]{1,128}$`)
	words      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// subjectOf returns a channel's subject: message_change_events.<shard>.<channel>.
func (b *Bus) subjectOf(channelID string) (string, error) {
	if !channelIDs.MatchString(channelID) {
		return "", fmt.Errorf("channel id %q is not valid in a NATS subject", channelID)
	}
	return streamName + "." + strconv.Itoa(message.Shard(channelID, b.config.Shards)) + "." + channelID, nil
}

// shardSubjects returns a pattern that covers the subjects of a shard's channels.
func shardSubjects(shard int) string { return streamName + "." + strconv.Itoa(shard) + ".*" }

// allSubjects returns a pattern that covers all subjects of the JetStream stream, those of all
// channels.
func allSubjects() string { return streamName + ".*.*" }

// consumerName returns the name of a shard's durable consumer: <group>_<shard>.
func (g *Group) consumerName(shard int) string { return g.name + "_" + strconv.Itoa(shard) }

// topicSubject returns the subject of broadcasts: parley.all.<topic>.
func topicSubject(topic string) (string, error) {
	if !words.MatchString(topic) {
		return "", fmt.Errorf("topic %q is not valid in a NATS subject", topic)
	}
	return topicPrefix + topic, nil
}

// nodeSubject returns the subject of requests to one node: parley.node.<node>.<topic>.
func nodeSubject(node, topic string) (string, error) {
	if !words.MatchString(node) || !words.MatchString(topic) {
		return "", fmt.Errorf("node %q or topic %q is not valid in a NATS subject", node, topic)
	}
	return nodePrefix + node + "." + topic, nil
}

// typingSubject returns the subject of a channel's typing notices: parley.typing.<channel>.
func typingSubject(channelID string) (string, error) { return channelSubject(typingPrefix, channelID) }

// deltaSubject returns the subject of the texts of a session's open messages:
// parley.delta.<channel>.
func deltaSubject(channelID string) (string, error) { return channelSubject(deltaPrefix, channelID) }

func channelSubject(prefix, channelID string) (string, error) {
	if !channelIDs.MatchString(channelID) {
		return "", fmt.Errorf("channel id %q is not valid in a NATS subject", channelID)
	}
	return prefix + channelID, nil
}

// messageID returns the id by which JetStream recognizes that an event is published again.
func messageID(e *message.Event) string {
	return e.Message.ChannelID + "/" + e.Epoch + "/" + strconv.FormatInt(e.Seq, 10)
}

// channelOf returns the channel that a subject names.
func channelOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
