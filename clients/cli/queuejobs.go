package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueJobsCommand struct {
	watchFlags
	topicArg

	Group string `help:"Only of this group. Default: of all groups." placeholder:"GROUP"`
	State string `help:"Only messages in this state: ${enum}." enum:"any,scheduled,waiting,sent,running,retrying" default:"any"`
	Key   string `help:"Only messages with this key." placeholder:"KEY"`
	Full  bool   `help:"With --json: also payloads and headers."`
	Limit int64  `help:"Maximum number of messages per group, 1 to 1000000000." default:"50" placeholder:"N"`
}

var jobStates = map[string]queue.JobState{
	"any": queue.AnyState, "scheduled": queue.Scheduled, "waiting": queue.Waiting, "sent": queue.Sent, "running": queue.Running,
	"retrying": queue.Retrying,
}

// jobJSON is the JSON form of a message and what groups did with it.
type jobJSON struct {
	Topic     string `json:"topic"`
	MessageID string `json:"message_id"`
	Partition int32  `json:"partition"`
	Key       string `json:"key,omitempty"`
	*payloadJSON

	Headers      map[string]string `json:"headers,omitempty"`
	PayloadBytes int32             `json:"payload_bytes"`
	ProduceTime  string            `json:"produce_time,omitempty"`
	DueTime      string            `json:"due_time,omitempty"`
	Groups       []jobInGroupJSON  `json:"groups"`
}

// jobInGroupJSON is the JSON form of the state of a message in one group.
type jobInGroupJSON struct {
	Group      string `json:"group"`
	State      string `json:"state"`
	Attempts   int32  `json:"attempts"`
	Deliveries int32  `json:"deliveries"`
	Consumer   string `json:"consumer,omitempty"`
	Session    string `json:"session,omitempty"`
	NodeID     string `json:"node_id,omitempty"`
	SinceTime  string `json:"since_time,omitempty"`
	RetryTime  string `json:"retry_time,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Code       string `json:"code,omitempty"`
	Suspect    bool   `json:"suspect,omitempty"`
}

// jobsViewJSON is the JSON form of a group's messages at one time. --watch writes it.
type jobsViewJSON struct {
	Event string    `json:"event"`
	Time  string    `json:"time"`
	Topic string    `json:"topic"`
	Group string    `json:"group,omitempty"`
	More  bool      `json:"more"`
	Jobs  []jobJSON `json:"jobs"`
}

// timeToJSON formats a time. It returns an empty string for an unset one.
func timeToJSON(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(timeFormat)
}

// jobToJSON converts a message, with payload and headers if full.
func jobToJSON(topic string, j *queue.Job, full bool) jobJSON {
	value := jobJSON{
		Topic: topic, MessageID: j.GetMessageId(), Partition: j.GetPartition(), Key: j.GetKey(), Headers: j.GetHeaders(),
		PayloadBytes: j.GetPayloadBytes(), ProduceTime: timeToJSON(j.GetProduceTime()), DueTime: timeToJSON(j.GetDueTime()),
		Groups: []jobInGroupJSON{}, // a list, not null
	}
	if full {
		value.payloadJSON = new(payloadToJSON(j.GetPayload()))
	}
	for _, g := range j.GetGroups() {
		value.Groups = append(value.Groups, jobInGroupJSON{
			Group: g.GetGroup(), State: stateName(g), Attempts: g.GetAttempts(), Deliveries: g.GetDeliveries(), Consumer: g.GetConsumer(),
			Session: g.GetSession(), NodeID: g.GetNodeId(), SinceTime: timeToJSON(g.GetSinceTime()), RetryTime: timeToJSON(g.GetRetryTime()),
			Reason: g.GetReason(), Code: g.GetCode(), Suspect: g.GetSuspect(),
		})
	}
	return value
}

func stateName(g *queue.JobInGroup) string { return lowerName(g.GetState().String(), "JOB_STATE_") }

// Run lists messages.
func (c *queueJobsCommand) Run(s *session) error {
	err := firstError(c.topicArg.check(), c.watchFlags.check(), checkOptionalName("--group", c.Group), checkMessage(c.Key, "", nil),
		checkRange("--limit", c.Limit, 1, maxMessages))
	if err == nil && c.Full && !s.flags.JSON {
		err = usagef("--full requires --json; 'parley queue job' shows one message")
	}
	if err != nil {
		return err
	}
	return c.repeat(s, "jobs", func(ctx context.Context, client *parley.Client, p printer) error {
		admin := queue.NewAdmin(client)
		groups, err := groupsOf(ctx, admin, c.Topic, c.Group)
		if err != nil {
			return err
		}
		now := time.Now()
		if jobStates[c.State] == queue.Scheduled && c.Group == "" || len(groups) == 0 {
			groups = []string{""} // what is scheduled is the same in all groups
		}
		for _, group := range groups {
			jobs, more, err := c.load(ctx, admin, group)
			if err != nil {
				return err
			}
			if err := c.write(p, now, group, jobs, more); err != nil {
				return err
			}
		}
		return nil
	})
}

// load returns messages of a group, at most --limit. It reports whether there are more. Without a
// group it returns the scheduled messages.
func (c *queueJobsCommand) load(ctx context.Context, admin *queue.Admin, group string) (jobs []*queue.Job, more bool, err error) {
	q := queue.JobQuery{Group: group, State: jobStates[c.State], Key: c.Key, Full: c.Full}
	if group == "" {
		if q.State != queue.Scheduled && q.State != queue.AnyState {
			return nil, false, nil // in a topic without groups
		}
		q.State = queue.Scheduled
	}
	for j, err := range first(c.Limit+1, admin.Jobs(ctx, c.Topic, q)) {
		if err != nil {
			return nil, false, err
		}
		if int64(len(jobs)) == c.Limit {
			return jobs, true, nil
		}
		jobs = append(jobs, j)
	}
	return jobs, false, nil
}

func (c *queueJobsCommand) write(p printer, now time.Time, group string, jobs []*queue.Job, more bool) error {
	if p.json {
		values := []jobJSON{} // a list, not null
		for _, j := range jobs {
			values = append(values, jobToJSON(c.Topic, j, c.Full))
		}
		if c.Watch {
			return p.print(jobsViewJSON{
				Event: "jobs", Time: now.UTC().Format(timeFormat), Topic: c.Topic, Group: group, More: more, Jobs: values,
			}, "")
		}
		for _, value := range values {
			if err := p.print(value, ""); err != nil {
				return err
			}
		}
		return nil
	}
	head := c.Topic + unless(group == "", "", "/"+group) + "  "
	switch {
	case more:
		head += fmt.Sprintf("the first %d", len(jobs))
	case len(jobs) == 0:
		head += "none"
	default:
		head += fmt.Sprint(len(jobs))
	}
	if c.State != "any" {
		head += " " + c.State
	}
	if err := p.print(nil, head); err != nil || len(jobs) == 0 {
		return err
	}
	rows := newTable(p.w, "  ", "MESSAGE", "AGE", "STATE", "SINCE", "ATTEMPTS", "DUE", "CONSUMER", "KEY", "FAILURE")
	for _, j := range jobs {
		g := &queue.JobInGroup{State: queue.Scheduled}
		if len(j.GetGroups()) > 0 {
			g = j.GetGroups()[0]
		}
		rows.row(j.GetMessageId(), ago(now, j.GetProduceTime()), stateName(g), ago(now, g.GetSinceTime()), g.GetAttempts(), dueIn(now, j, g),
			g.GetConsumer(), clip(oneLine(j.GetKey()), 40), failureText(g, 40))
	}
	return rows.flush()
}

// ago returns the age of a time, or an empty string for an unset one.
func ago(now time.Time, t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return approxDuration(now.Sub(t.AsTime()))
}

// dueIn returns the time until a message that is scheduled or retried is due, or an empty string.
func dueIn(now time.Time, j *queue.Job, g *queue.JobInGroup) string {
	at := g.GetRetryTime()
	if g.GetState() == queue.Scheduled {
		at = j.GetDueTime()
	}
	if at == nil {
		return ""
	}
	return "in " + approxDuration(at.AsTime().Sub(now))
}

// failureText returns the code and the reason of the last failure, or an empty string.
func failureText(g *queue.JobInGroup, limit int) string {
	text := g.GetReason()
	if g.GetCode() != "" {
		text = "[" + g.GetCode() + "] " + text
	}
	return clip(oneLine(text), limit)
}

type queueJobCommand struct {
	topicArg

	ID string `arg:"" name:"message-id" help:"The message's id."`
}

// Run shows one message.
func (c *queueJobCommand) Run(s *session) error {
	if err := firstError(c.topicArg.check(), checkIDs("<message-id>", []string{c.ID})); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		j, err := admin.Job(ctx, c.Topic, c.ID)
		if err != nil {
			return explainQueue("job "+c.ID, err)
		}
		text, err := c.text(j, time.Now())
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return s.printer().print(jobToJSON(c.Topic, j, true), text)
	})
}

// text returns what the command writes for humans.
func (c *queueJobCommand) text(j *queue.Job, now time.Time) (string, error) {
	var b strings.Builder
	at := func(t *timestamppb.Timestamp) string {
		return t.AsTime().Local().Format(time.DateTime) + " (" + ago(now, t) + " ago)"
	}
	rows := newTable(&b, "  ", "partition", fmt.Sprint(j.GetPartition()))
	if j.GetKey() != "" {
		rows.row("key", j.GetKey())
	}
	rows.row("produced", at(j.GetProduceTime()))
	if due := j.GetDueTime(); due != nil {
		rows.row("due", due.AsTime().Local().Format(time.DateTime))
	}
	for _, name := range slices.Sorted(maps.Keys(j.GetHeaders())) {
		rows.row("header "+name, j.GetHeaders()[name])
	}
	rows.row("payload", fmt.Sprintf("%s: %s", count(int64(j.GetPayloadBytes()), "byte", "bytes"), clip(oneLine(string(j.GetPayload())), 1000)))
	if err := rows.flush(); err != nil {
		return "", err
	}
	if len(j.GetGroups()) > 0 {
		b.WriteString("\n")
		groups := newTable(&b, "  ", "GROUP", "STATE", "ATTEMPTS", "DELIVERIES", "SINCE", "DUE", "CONSUMER", "NODE", "FAILURE")
		for _, g := range j.GetGroups() {
			state := stateName(g)
			if g.GetSuspect() {
				state += " (suspect)"
			}
			groups.row(g.GetGroup(), state, g.GetAttempts(), g.GetDeliveries(), ago(now, g.GetSinceTime()), dueIn(now, j, g), g.GetConsumer(),
				g.GetNodeId(), failureText(g, 200))
		}
		if err := groups.flush(); err != nil {
			return "", err
		}
	}
	return c.Topic + ": " + j.GetMessageId() + "\n" + strings.TrimSuffix(b.String(), "\n"), nil
}

type queueRetryCommand struct {
	topicArg

	IDs   []string `arg:"" optional:"" name:"message-ids" help:"The messages' ids, as printed by 'jobs'."`
	Group string   `help:"The group that retries." required:"" placeholder:"GROUP"`
	All   bool     `help:"All messages of the group that wait for a retry."`
}

// retriedJSON is the JSON form of the result of retrying messages.
type retriedJSON struct {
	Event   string `json:"event"`
	Topic   string `json:"topic"`
	Group   string `json:"group"`
	Retried int64  `json:"retried"`
}

// Run makes messages that wait for a retry due now.
func (c *queueRetryCommand) Run(s *session) error {
	err := firstError(c.topicArg.check(), checkName("--group", c.Group), checkIDs("<message-ids>", c.IDs))
	switch {
	case err != nil:
		return err
	case c.All && len(c.IDs) > 0:
		return usagef("--all and ids exclude each other: --all selects all messages that wait for a retry")
	case !c.All && len(c.IDs) == 0:
		return usagef("retry: requires ids or --all")
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		ids := c.IDs
		if c.All {
			for j, err := range admin.Jobs(ctx, c.Topic, queue.JobQuery{Group: c.Group, State: queue.Retrying}) {
				if err != nil {
					return explainQueue("retry", err)
				}
				ids = append(ids, j.GetMessageId())
			}
		}
		done := retriedJSON{Event: "retried", Topic: c.Topic, Group: c.Group}
		for part := range slices.Chunk(ids, maxBatchIDs) {
			n, err := admin.RetryJobs(ctx, c.Topic, c.Group, part...)
			if err != nil {
				return explainQueue("retry", err)
			}
			done.Retried += n
		}
		return s.printer().print(done, fmt.Sprintf("%s: %s due now", c.Topic, count(done.Retried, "message is", "messages are")))
	})
}
