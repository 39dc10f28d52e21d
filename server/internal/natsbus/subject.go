package natsbus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// streamName is the stream's, and the first token of its subjects.
	streamName = "message_change_events"
	// What nodes say to all, to one, and who types, begins with these. The stream must not cover them.
	topicPrefix  = "parley.all."
	nodePrefix   = "parley.node."
	typingPrefix = "parley.typing."
)

// channelIDs and words match what can be a token of a subject: channel ids, and the names of topics and nodes. NATS accepts
// nearly anything: an id of `*` or `>`, or one with a dot, would reach, or be read by, other channels.
var (
	channelIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	words      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// subjectOf is a channel's subject: message_change_events.<bucket>.<channel>.
func (b *Bus) subjectOf(channelID string) (string, error) {
	if !channelIDs.MatchString(channelID) {
		return "", fmt.Errorf("channel id %q can't be in a subject", channelID)
	}
	return streamName + "." + strconv.Itoa(message.Bucket(channelID, b.config.Buckets)) + "." + channelID, nil
}

// bucketSubjects covers the subjects of a bucket's channels.
func bucketSubjects(bucket int) string { return streamName + "." + strconv.Itoa(bucket) + ".*" }

// allSubjects covers all of the stream's subjects.
func allSubjects() string { return streamName + ".*.*" }

// consumerName is that of a bucket's durable consumer: <group>_<bucket>.
func (g *Group) consumerName(bucket int) string { return g.name + "_" + strconv.Itoa(bucket) }

// topicSubject is that of what is said to all nodes: parley.all.<topic>.
func topicSubject(topic string) (string, error) {
	if !words.MatchString(topic) {
		return "", fmt.Errorf("topic %q can't be in a subject", topic)
	}
	return topicPrefix + topic, nil
}

// nodeSubject is that of what is asked of one node: parley.node.<node>.<topic>.
func nodeSubject(node, topic string) (string, error) {
	if !words.MatchString(node) || !words.MatchString(topic) {
		return "", fmt.Errorf("node %q and topic %q can't be in a subject", node, topic)
	}
	return nodePrefix + node + "." + topic, nil
}

// typingSubject is that of who types in a channel: parley.typing.<channel>.
func typingSubject(channelID string) (string, error) {
	if !channelIDs.MatchString(channelID) {
		return "", fmt.Errorf("channel id %q can't be in a subject", channelID)
	}
	return typingPrefix + channelID, nil
}

// messageID is what JetStream knows a repeated publish by.
func messageID(e *message.Event) string {
	return e.Message.ChannelID + "/" + e.Epoch + "/" + strconv.FormatInt(e.Seq, 10)
}

// channelOf is the channel that a subject names.
func channelOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
