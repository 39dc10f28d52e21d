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
	// groupName is what the names of the cache builder's consumers begin with.
	groupName = "redis_cache_group"
)

// channelIDs is what may stand in a subject. NATS itself takes nearly anything: an id of `*` or `>`, or one with a dot,
// would reach, or be read by, other channels.
var channelIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

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

// consumerName is that of a bucket's durable consumer.
func consumerName(bucket int) string { return groupName + "_" + strconv.Itoa(bucket) }

// messageID is what JetStream knows a repeated publish by.
func messageID(e *message.Event) string {
	return e.Message.ChannelID + "/" + e.Epoch + "/" + strconv.FormatInt(e.Seq, 10)
}

// channelOf is the channel that a subject names.
func channelOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
