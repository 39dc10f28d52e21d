package cli

import (
	"context"
	"strings"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

type infoCommand struct{}

// infoJSON is the JSON form of the server's version, features and limits.
type infoJSON struct {
	Version  string     `json:"version"`
	Features []string   `json:"features"`
	Limits   limitsJSON `json:"limits"`
}

// limitsJSON is the JSON form of a server's limits. The names are those of the API.
type limitsJSON struct {
	MaxContentBytes         int32 `json:"max_content_bytes"`
	MaxSessionContentBytes  int32 `json:"max_session_content_bytes"`
	MaxBatchMessages        int32 `json:"max_batch_messages"`
	MaxChannelsPerStream    int32 `json:"max_channels_per_stream"`
	MaxStreamsPerSubject    int32 `json:"max_streams_per_subject"`
	MaxPayloadBytes         int32 `json:"max_payload_bytes"`
	MaxProduceMessages      int32 `json:"max_produce_messages"`
	MaxConsumersPerSubject  int32 `json:"max_consumers_per_subject"`
	HeartbeatIntervalMillis int64 `json:"heartbeat_interval_ms"`
}

func infoToJSON(i *parley.ServerInfo) infoJSON {
	limits := i.GetLimits()
	value := infoJSON{Version: i.GetVersion(), Features: []string{}, Limits: limitsJSON{ // a list, not null
		MaxContentBytes: limits.GetMaxContentBytes(), MaxSessionContentBytes: limits.GetMaxSessionContentBytes(),
		MaxBatchMessages:     limits.GetMaxBatchMessages(),
		MaxChannelsPerStream: limits.GetMaxChannelsPerStream(), MaxStreamsPerSubject: limits.GetMaxStreamsPerSubject(),
		MaxPayloadBytes: limits.GetMaxPayloadBytes(), MaxProduceMessages: limits.GetMaxProduceMessages(),
		MaxConsumersPerSubject:  limits.GetMaxConsumersPerSubject(),
		HeartbeatIntervalMillis: limits.GetHeartbeatInterval().AsDuration().Milliseconds(),
	}}
	for _, f := range i.GetFeatures() {
		value.Features = append(value.Features, lowerName(f.String(), "SERVER_FEATURE_"))
	}
	return value
}

// Run shows the server's version, features and limits. For a fleet it shows those of one node.
func (*infoCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		info, err := client.ServerInfo(ctx)
		if err != nil {
			return explain("info", err)
		}
		value := infoToJSON(info)
		features := strings.Join(value.Features, ", ")
		if features == "" {
			features = "none"
		}
		var b strings.Builder
		rows := newTable(&b, "", "version", value.Version)
		rows.row("features", features)
		rows.row("max message content", bytesText(value.Limits.MaxContentBytes))
		rows.row("max session content", bytesText(value.Limits.MaxSessionContentBytes))
		rows.row("max messages per batch", value.Limits.MaxBatchMessages)
		rows.row("max channels per stream", value.Limits.MaxChannelsPerStream)
		rows.row("max streams per subject", value.Limits.MaxStreamsPerSubject)
		rows.row("max queue payload", bytesText(value.Limits.MaxPayloadBytes))
		rows.row("max queue messages per call", value.Limits.MaxProduceMessages)
		rows.row("max consumers per subject", value.Limits.MaxConsumersPerSubject)
		rows.row("heartbeat interval", formatDuration(time.Duration(value.Limits.HeartbeatIntervalMillis)*time.Millisecond))
		if err := rows.flush(); err != nil {
			return err
		}
		return s.printer().print(value, strings.TrimSuffix(b.String(), "\n"))
	})
}

// bytesText returns a number of bytes for humans.
func bytesText(n int32) string { return count(int64(n), "byte", "bytes") }
