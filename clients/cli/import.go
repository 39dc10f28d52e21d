package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/parleyhq/parley/clients/cli/irclog"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// importBatch is the maximum number of messages in one request.
	importBatch = 500
	// maxContent and maxID are the server's limits, in bytes. They are checked before anything is
	// sent, so that a log with a line that is too long is not imported in part.
	maxContent = 64 << 10
	maxID      = 128
	// maxReportedErrors is the maximum number of invalid lines, or of refused messages, that an error
	// lists.
	maxReportedErrors = 10
)

type importCommand struct {
	Dir      string        `arg:"" help:"Directory of *.raw.txt logs, or one log file."`
	Channel  string        `help:"Channel to import into." required:""`
	RetryFor time.Duration `help:"How long to retry when the server is unavailable." default:"2m"`
	Speed    float64       `help:"Replay each log at this multiple of its original speed: 1 is real time, 60 is an hour per minute. Default: as fast as possible." placeholder:"TIMES"`
}

// importCount is the result of an import, in its JSON form.
type importCount struct {
	Event        string `json:"event"`
	ChannelID    string `json:"channel_id"`
	Files        int    `json:"files"`
	Total        int    `json:"total"`
	Text         int    `json:"text"`
	Action       int    `json:"action"`
	Sent         int    `json:"sent"`
	AlreadyThere int    `json:"already_there"`
	Notices      int    `json:"notices"`
	Unknown      int    `json:"unknown_lines"`
	Repaired     int    `json:"repaired_lines"`
}

// Run imports logs of IRC channels. The server finds messages of an earlier import by their
// client_msg_id. An interrupted import therefore continues when it is run again.
func (c *importCommand) Run(s *session) error {
	if c.Speed != 0 && !(c.Speed >= minSpeed && c.Speed <= maxSpeed) { // NaN too
		return usagef("--speed must be between %g and %g", minSpeed, maxSpeed)
	}
	files, err := irclog.Files(c.Dir)
	if err != nil {
		return err
	}
	count := importCount{Event: "imported", ChannelID: c.Channel, Files: len(files)}
	if err := c.validate(s, files, &count); err != nil {
		return err
	}
	terminal := isTerminal(s.stderr)
	client, err := s.client(parley.WithLogger(slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{
		Level: slog.LevelWarn, ReplaceAttr: withoutTime,
	}))))
	if err != nil {
		return err
	}
	defer client.Close()
	bar := progressbar.NewOptions(count.Total,
		progressbar.OptionSetWriter(s.stderr), progressbar.OptionSetVisibility(terminal),
		progressbar.OptionSetDescription("importing"), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("messages"), progressbar.OptionThrottle(100*time.Millisecond),
	)
	work := c.importFiles
	if c.Speed > 0 {
		work = c.replayFiles
	}
	err = work(s.ctx, client, files, &count, func(n int) { _ = bar.Add(n) })
	if terminal {
		_, _ = fmt.Fprintln(s.stderr)
	}
	if err != nil {
		done := count.Sent + count.AlreadyThere
		return fmt.Errorf("%w\nat least %d of %d messages are stored in %s (%d sent by this run); run the same command again to continue",
			explain("import", err), done, count.Total, c.Channel, count.Sent)
	}
	return s.printer().print(count, fmt.Sprintf("%s: %d sent, %d already there, %d total (%d text, %d action; %d notices skipped)",
		c.Channel, count.Sent, count.AlreadyThere, count.Total, count.Text, count.Action, count.Notices))
}

// validate counts the messages to import. It returns an error for messages that cannot be imported,
// before anything is sent.
func (c *importCommand) validate(s *session, files []string, count *importCount) error {
	var invalid []error
	var firstUnknown string
	for _, path := range files {
		lines, err := irclog.Read(path)
		if err != nil {
			return err
		}
		for _, l := range lines {
			switch l.Kind {
			case irclog.Text:
				count.Text++
			case irclog.Action:
				count.Action++
			case irclog.Notice:
				count.Notices++
			case irclog.Unknown:
				if count.Unknown++; firstUnknown == "" {
					firstUnknown = lineName(path, l)
				}
			case irclog.Blank:
			}
			if l.Repaired {
				count.Repaired++
			}
			if err := checkLine(path, l); err != nil && len(invalid) < maxReportedErrors {
				invalid = append(invalid, err)
			}
		}
	}
	count.Total = count.Text + count.Action
	if count.Unknown > 0 {
		_, _ = fmt.Fprintf(s.stderr, "parley: skipped %d lines of an unknown form; the first is %s\n", count.Unknown, firstUnknown)
	}
	if count.Repaired > 0 {
		_, _ = fmt.Fprintf(s.stderr, "parley: replaced NUL and invalid UTF-8 bytes with U+FFFD in %d lines\n", count.Repaired)
	}
	if len(invalid) > 0 {
		return fmt.Errorf("nothing was imported: %w", errors.Join(invalid...))
	}
	return nil
}

// checkLine returns an error for a message that the server would refuse, and nil for any other
// line.
func checkLine(path string, l irclog.Line) error {
	switch {
	case !l.IsMessage():
		return nil
	case len(l.Content) > maxContent:
		return fmt.Errorf("%s: the text has %d bytes; the limit is %d", lineName(path, l), len(l.Content), maxContent)
	case len(l.Sender) > maxID:
		return fmt.Errorf("%s: the nick, encoded as an id, has %d bytes; the limit is %d", lineName(path, l), len(l.Sender), maxID)
	case len(clientMsgID(path, l)) > maxID:
		return fmt.Errorf("%s: file name and line number, encoded as an id, exceed the limit of %d bytes", lineName(path, l), maxID)
	default:
		return nil
	}
}

func lineName(path string, l irclog.Line) string {
	return filepath.Base(path) + ":" + strconv.Itoa(l.Number)
}

// clientMsgID returns an id made of the file's name and the line's number.
func clientMsgID(path string, l irclog.Line) string { return irclog.EncodeID(lineName(path, l)) }

// importFiles sends batch after batch, in order. Each batch is sent when the previous one is
// stored.
func (c *importCommand) importFiles(
	ctx context.Context, client *parley.Client, files []string, count *importCount, progress func(int),
) error {
	batch := make([]parley.Outgoing, 0, importBatch)
	flush := func() error {
		err := c.sendBatch(ctx, client, batch, count)
		progress(len(batch))
		batch = batch[:0]
		return err
	}
	for _, path := range files {
		lines, err := irclog.Read(path)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if !l.IsMessage() {
				continue
			}
			batch = append(batch, c.outgoing(path, l))
			if len(batch) == importBatch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

func (c *importCommand) outgoing(path string, l irclog.Line) parley.Outgoing {
	msgType := "text"
	if l.Kind == irclog.Action {
		msgType = "action"
	}
	return parley.Outgoing{
		ChannelID: c.Channel, Content: l.Content, ClientMsgID: clientMsgID(path, l), Type: msgType, Sender: l.Sender,
	}
}

// sendBatch stores a batch. It retries failures for the time of --retry-for.
func (c *importCommand) sendBatch(ctx context.Context, client *parley.Client, batch []parley.Outgoing, count *importCount) error {
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.RetryFor)
	defer cancel()
	results, err := client.SendBatch(ctx, batch)
	var refused error
	for i, r := range results {
		switch {
		case r.Err != nil:
			if refused == nil {
				refused = fmt.Errorf("%s: %w", batch[i].ClientMsgID, r.Err)
			}
		case r.Receipt.Duplicate:
			count.AlreadyThere++
		default:
			count.Sent++
		}
	}
	if err != nil {
		return err
	}
	return refused
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
