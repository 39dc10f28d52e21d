package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// cpuLimit is the processor time that one hostile call may cost the server and this test together.
const cpuLimit = raceCPU * 50 * time.Millisecond

// logLines holds the server's log, parsed as JSON. It is safe for concurrent use.
type logLines struct {
	mu    sync.Mutex // guards what follows
	lines []map[string]any
	bad   []string
}

// Write implements io.Writer. slog writes one record per call.
func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var m map[string]any
	if bytes.Count(p, []byte("\n")) != 1 || json.Unmarshal(p, &m) != nil {
		l.bad = append(l.bad, string(p))
		return len(p), nil
	}
	l.lines = append(l.lines, m)
	return len(p), nil
}

// has reports whether a record of the log has the message msg.
func (l *logLines) has(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line map[string]any) bool { return line["msg"] == msg })
}

// count returns how many records of the log have the message msg.
func (l *logLines) count(msg string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if line["msg"] == msg {
			n++
		}
	}
	return n
}

// names reports whether a record of the log has the attribute name.
func (l *logLines) names(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line map[string]any) bool { return line[name] != nil })
}

// failures returns the log's records that say that the call with this request id failed.
func (l *logLines) failures(requestID string) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for _, line := range l.lines {
		if line["request_id"] == requestID && (line["msg"] == "call failed" || line["msg"] == "call refused") {
			out = append(out, line)
		}
	}
	return out
}

// check fails the test if the log has a record that is not one line of JSON, or that reports a
// panic.
func (l *logLines) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, record := range l.bad {
		t.Errorf("the log holds %q", record)
	}
	for _, line := range l.lines {
		if t.Failed() && line["level"] != "INFO" {
			t.Logf("logged %v", line)
		}
		if text := fmt.Sprint(line); line["stack"] != nil || strings.Contains(text, "panic") {
			t.Errorf("the log has a panic: %s", text)
		}
	}
}

// target is a server under attack, with access to its log, metrics and stored state.
type target struct {
	*servertest.Server

	t      *testing.T
	log    *logLines
	h1, h2 *http.Client
	calls  atomic.Int64
	// own is the client that tester returns; nil until tester is called.
	own client
	// queues returns a description of the topics that requests must not change; nil if the test has
	// none.
	queues func() string
}

// attack starts a dev server with a JSON log, which is checked when the test ends. change, if not
// nil, changes the configuration.
func attack(t *testing.T, change func(*config.Config)) *target {
	t.Helper()
	g := &target{t: t, log: &logLines{}}
	t.Cleanup(func() { g.log.check(t) })
	g.Server = servertest.Dev(t, servertest.With(func(c *config.Config) {
		c.Log.Format, c.Log.Level, c.Log.CallsPerSecond = "json", "info", 1e6
		if change != nil {
			change(c)
		}
	}), servertest.WithServerOption(server.WithLogOutput(g.log)))
	one := &http.Transport{DisableCompression: true}
	t.Cleanup(one.CloseIdleConnections)
	g.h1, g.h2 = &http.Client{Transport: one}, servertest.HTTPClient(t, "")
	return g
}

// line is a hostile request and the answer that it must get.
type line struct {
	name string
	// procedure is a method of MessageService, QueueService, PresenceService or AdminService. path
	// replaces it for any other target.
	procedure, path string
	// message is sent in all four dialects. json and binary are raw payloads for the dialects that
	// use that form.
	message      proto.Message
	json, binary string
	// body builds the whole body from a payload; nil means as the dialect does.
	body func(d *dialect, payload []byte) []byte
	// header is added to the request. method replaces POST.
	header http.Header
	method string
	// only names the dialects in which the line is sent, separated by spaces; empty means all.
	only string
	// token is the caller's valid access token; empty means one that may do everything.
	token string
	// open means that a request without a token gets the same answer. Any other line must then be
	// answered as unauthenticated.
	open bool
	want want
	// by has the answers for the dialects whose answer differs from want, by name.
	by map[string]want
}

// want is the answer that a line must get.
type want struct {
	code, reason, field string
	// limit is the limit in the error's detail. With TOO_LARGE, 0 matches any.
	limit int64
	// http is the HTTP status; 0 if the status is not checked.
	http int
	// library means that connect answers with an HTTP status only, without code or detail.
	library bool
}

func invalid(field string) want {
	return want{code: "invalid_argument", reason: "INVALID_FIELD", field: field}
}

func over(field string, limit int64) want {
	return want{code: "invalid_argument", reason: "INVALID_FIELD", field: field, limit: limit}
}

// refused is the answer to a request that can't be read.
func refused(code string) want {
	return want{code: code, reason: map[string]string{
		"invalid_argument": "MALFORMED_REQUEST", "internal": "MALFORMED_REQUEST", "resource_exhausted": "TOO_LARGE",
		"unimplemented": "UNIMPLEMENTED", "deadline_exceeded": "DEADLINE_EXCEEDED",
	}[code]}
}

// unknownField is the answer to a JSON write request with an unknown field.
func unknownField(path string) want {
	return want{code: "invalid_argument", reason: "MALFORMED_REQUEST", field: path}
}

var (
	unauthenticated = want{code: "unauthenticated", reason: "TOKEN_INVALID"}
	expired         = want{code: "unauthenticated", reason: "TOKEN_EXPIRED"}
)

// insides matches words of Go, its libraries and the engines, which no answer may contain.
var insides = regexp.MustCompile(`strconv|unmarshal|parleyv1|goroutine|proto: |http: |\bEOF\b|gzip: |flate: |i/o timeout|(?i:redis|mongo|\bnats\b|jetstream|pebble)`)

// in returns the expected answer in a dialect.
func (l *line) in(d *dialect) want {
	if w, ok := l.by[d.name]; ok {
		return w
	}
	return l.want
}

// dialects returns the dialects in which a line is sent.
func (l *line) dialects() []*dialect {
	var out []*dialect
	for i := range dialects {
		d := &dialects[i]
		extra := strings.HasPrefix(d.name, "grpc") && d.json
		switch {
		case l.procedure == streamingConsume && !d.h2: // HTTP/1.1 has no bidirectional streams
		case l.only != "" && !strings.Contains(" "+l.only+" ", " "+d.name+" "):
		case l.json != "" && d.json, l.binary != "" && !d.json:
			out = append(out, d)
		case l.json == "" && l.binary == "" && !extra:
			out = append(out, d)
		}
	}
	return out
}

// request builds the line's request.
func (g *target) request(l *line, d *dialect, token string) *http.Request {
	g.t.Helper()
	procedure := l.procedure
	if procedure == "" {
		procedure = sendMessage
	}
	path := l.path
	if path == "" {
		path = pathOf(procedure)
	}
	payload := []byte(l.binary)
	switch {
	case l.message != nil:
		payload = d.encode(g.t, l.message)
	case d.json:
		payload = []byte(l.json)
	}
	body := d.body(procedure, payload)
	if l.body != nil {
		body = l.body(d, payload)
	}
	method := l.method
	if method == "" {
		method = http.MethodPost
	}
	var reader io.Reader = bytes.NewReader(body)
	if method == http.MethodGet {
		reader = http.NoBody
	}
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.URL+path, reader)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", d.contentType(procedure))
	req.Header.Set("Te", "trailers")
	req.Header.Set("X-Request-Id", "hostile-"+strconv.FormatInt(g.calls.Add(1), 10))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	maps.Copy(req.Header, l.header)
	return req
}

// do sends a request as the dialect does and reads the answer.
func (g *target) do(d *dialect, req *http.Request) *answer {
	g.t.Helper()
	hc := g.h1
	if d.h2 {
		hc = g.h2
	}
	resp, err := hc.Do(req)
	if err != nil {
		g.t.Fatalf("%s: %v", d.name, err)
	}
	defer resp.Body.Close()
	a, err := readAnswer(d, resp)
	if err != nil {
		g.t.Fatalf("%s: %v", d.name, err)
	}
	return a
}

// call sends a line once in a dialect, with an access token. An empty token is not sent.
func (g *target) call(l *line, d *dialect, token string) *answer {
	g.t.Helper()
	return g.do(d, g.request(l, d, token))
}

// judge compares an answer with the expected one and checks its log record.
func (g *target) judge(name string, a *answer, w want) {
	g.t.Helper()
	if a.code != w.code || (w.http != 0 && a.http != w.http) {
		g.t.Errorf("%s: answered %d %s %q, want %d %s", name, a.http, a.code, a.message, w.http, w.code)
		return
	}
	if insides.MatchString(a.raw) {
		g.t.Errorf("%s: the answer reveals server internals: %s", name, a.raw)
	}
	if w.library {
		if a.code != "" || a.detail != nil {
			g.t.Errorf("%s: answered %s with %v, want only HTTP's status", name, a.code, a.detail)
		}
		g.logged(name, a, w)
		return
	}
	limit := a.detail.GetLimit()
	if w.reason == "TOO_LARGE" && w.limit == 0 && limit > 0 {
		limit = 0
	}
	reason := strings.TrimPrefix(a.detail.GetReason().String(), "ERROR_REASON_")
	if reason != w.reason || a.detail.GetField() != w.field || limit != w.limit {
		g.t.Errorf("%s: reason %s, field %q, limit %d (%q), want %s, %q, %d", name, reason, a.detail.GetField(),
			a.detail.GetLimit(), a.message, w.reason, w.field, w.limit)
	}
	if a.detail.GetRequestId() != a.requestID {
		g.t.Errorf("%s: the detail's request id is %q, the header's %q", name, a.detail.GetRequestId(), a.requestID)
	}
	g.logged(name, a, w)
}

// logged checks that a failed call has exactly one log record, with the expected code. The record
// needs no code if the connect library answered the call.
func (g *target) logged(name string, a *answer, w want) {
	g.t.Helper()
	var lines []map[string]any
	testkit.Eventually(g.t, 5*time.Second, func() error {
		if lines = g.log.failures(a.requestID); len(lines) == 0 {
			return fmt.Errorf("%s: request %s is not in the log", name, a.requestID)
		}
		return nil
	})
	if code := lines[0]["code"]; len(lines) != 1 || (code != w.code && (code != nil || !w.library)) {
		g.t.Errorf("%s: logged %v", name, lines)
	}
}

// cpu returns the processor time of this process, which includes the server.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails for the own process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stored returns how many entries the server has written to its store since it started.
func (g *target) stored() string {
	g.t.Helper()
	resp, err := g.h1.Get(g.OpsURL + "/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if name, value, ok := strings.Cut(line, " "); ok && strings.HasPrefix(name, "parley_store_insert_entries_sum") {
			return value
		}
	}
	g.t.Fatal("the metrics have no count of stored entries")
	return ""
}

// tester returns the client of the subject tester, with which tests read the server's state.
func (g *target) tester() client {
	if g.own == nil {
		g.own = g.Client(g.Token)
	}
	return g.own
}

// head returns the position of the last entry in a channel's log.
func (g *target) head(channel string) int64 {
	g.t.Helper()
	return listPage(g.t, g.tester(), &parleyv1.ListMessagesRequest{ChannelId: channel}).GetHeadSeq()
}

// mine returns the channels of which the subject tester is a member.
func (g *target) mine() []*parleyv1.UserChannel {
	g.t.Helper()
	res, err := g.tester().ListChannels(g.t.Context(), &parleyv1.ListChannelsRequest{PageSize: 200})
	if err != nil {
		g.t.Fatalf("list channels: %v", err)
	}
	return res.GetChannels()
}

// known describes what the server stores besides messages: the tester's channels, their members and
// read cursors, and the state that queues describes.
func (g *target) known() string {
	g.t.Helper()
	var out strings.Builder
	for _, m := range g.mine() {
		c := m.GetChannel()
		fmt.Fprintln(&out, c.GetChannelId(), c.GetMembersOnly(), c.GetCreatedBy(), c.GetHeadSeq(), c.GetCount())
		res, err := g.tester().ListMembers(g.t.Context(), &parleyv1.ListMembersRequest{ChannelId: c.GetChannelId(), PageSize: 1000})
		if err != nil {
			g.t.Fatalf("list members: %v", err)
		}
		for _, m := range res.GetMembers() {
			fmt.Fprintln(&out, "-", m.GetUserId(), m.GetReadSeq(), m.GetJoinTime().AsTime())
		}
	}
	if g.queues != nil {
		out.WriteString(g.queues())
	}
	return out.String()
}

// settle waits until the stored head of channels and the tester's read cursor in them have reached
// the last message. The tester must have sent it.
func (g *target) settle(channels ...string) {
	g.t.Helper()
	for _, channel := range channels {
		head := g.head(channel)
		testkit.Eventually(g.t, 10*time.Second, func() error {
			for _, m := range g.mine() {
				if c := m.GetChannel(); c.GetChannelId() == channel && c.GetHeadSeq() == head && m.GetReadSeq() == head {
					return nil
				}
			}
			return fmt.Errorf("the row of %s does not reach %d", channel, head)
		})
	}
}

// run sends every line in every dialect, with and without a valid token, and checks the answer, the
// log, the store and the processor time. Channels other than `room` that the tester has sent to
// must be settled before.
func (g *target) run(lines []line) {
	send(g.t, g.tester(), "room", "what stands there before")
	g.settle("room")
	for i := range lines {
		l := &lines[i]
		g.t.Run(l.name, func(t *testing.T) {
			outer := g.t
			g.t = t
			defer func() { g.t = outer }()
			stored, head, known := g.stored(), g.head("room"), g.known()
			for _, d := range l.dialects() {
				token := l.token
				if token == "" {
					token = g.Token
				}
				g.measured(l, d, token, d.name, l.in(d))
				bare := unauthenticated
				if l.open {
					bare = l.in(d)
				}
				g.measured(l, d, "", d.name+" without a token", bare)
			}
			if now := g.stored(); now != stored || g.head("room") != head {
				t.Errorf("the store has %s entries, the channel ends at %d; before it was %s, %d", now, g.head("room"), stored, head)
			}
			if now := g.known(); now != known {
				t.Errorf("of channels and members the store has\n%sbefore it was\n%s", now, known)
			}
		})
	}
}

// measured sends a line and checks its answer and that it costs less than cpuLimit of processor
// time. Other work on the machine may raise the cost, so it is measured up to five times.
func (g *target) measured(l *line, d *dialect, token, name string, w want) {
	g.t.Helper()
	least := time.Hour
	for range 5 {
		req := g.request(l, d, token)
		before := cpu()
		a := g.do(d, req)
		least = min(least, cpu()-before)
		g.judge(name, a, w)
		if least < cpuLimit {
			return
		}
	}
	g.t.Errorf("%s: the call took %v of processor time, at most %v is allowed", name, least, cpuLimit)
}
