package parley_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/server/servertest"
)

// backend is a server that the scenarios run against. They ask nothing of it but the contract, so a real server is one
// more entry in backends.
type backend interface {
	// Addr is the server's address, the same through Kill and Restart.
	Addr() string
	// Kill ends the server at once; Restart brings it back with all that it acknowledged.
	Kill()
	Restart()
	// TokenOf gives a user's token. That of `tester` may do everything, that of another user all but manage.
	TokenOf(userID string) string
}

// backends are the servers.
var backends = map[string]func(t *testing.T) backend{
	"memory": func(t *testing.T) backend {
		t.Helper()
		return memory{parleytest.Start(t)}
	},
	"parleyd": func(t *testing.T) backend {
		t.Helper()
		return parleyd{servertest.Dev(t)}
	},
}

// memory is the server in memory.
type memory struct{ *parleytest.Server }

func (m memory) TokenOf(userID string) string {
	token := "token of " + userID
	m.SetUser(token, userID)
	return token
}

// parleyd is a real server.
type parleyd struct{ *servertest.Server }

func (p parleyd) Addr() string { return p.URL }
func (p parleyd) Kill()        { p.Stop() }
func (p parleyd) Restart()     { p.Start() }

func (p parleyd) TokenOf(userID string) string {
	if userID == "tester" {
		return p.Token
	}
	return p.Mint(userID, "send", "history", "subscribe")
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	protocols := map[string]parley.Protocol{
		"connect": parley.ProtocolConnect, "grpc": parley.ProtocolGRPC, "grpcweb": parley.ProtocolGRPCWeb,
	}
	scenarios := map[string]func(t *testing.T, b backend, c *parley.Client){
		"send and read":          scenarioSendAndRead,
		"edit and recall":        scenarioEditAndRecall,
		"resume through a crash": scenarioResume,
		"members and cursors":    scenarioMembers,
	}
	for server, start := range backends {
		for protocol, p := range protocols {
			for name, run := range scenarios {
				t.Run(server+"/"+protocol+"/"+name, func(t *testing.T) {
					t.Parallel()
					b := start(t)
					run(t, b, newClient(t, b.Addr(), parley.WithToken(b.TokenOf("tester")), parley.WithProtocol(p)))
				})
			}
		}
	}
}

func scenarioSendAndRead(t *testing.T, _ backend, c *parley.Client) {
	ctx := testContext(t)
	sub := subscribe(t, c, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	var last *parley.Receipt
	for i := 1; i <= 5; i++ {
		r, err := c.Send(ctx, "room", fmt.Sprintf("message %d", i), parley.WithMetadata(map[string]string{"n": fmt.Sprint(i)}))
		if err != nil {
			t.Fatalf("send: %v", err)
		}
		if r.Seq != int64(i) || r.Count != int64(i) || r.MsgID == "" || r.ClientMsgID == "" || r.Epoch == "" || r.Duplicate {
			t.Fatalf("receipt %d: %+v", i, r)
		}
		last = r
	}
	wantEntries(t, sub, "room", 1, 5)
	n := 5
	for m, err := range c.History(ctx, "room", parley.PageSize(2)) {
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		if want := fmt.Sprintf("message %d", n); m.GetContent() != want || m.GetMetadata()["n"] != fmt.Sprint(n) {
			t.Fatalf("history gives %q, want %q", m.GetContent(), want)
		}
		n--
	}
	if n != 0 {
		t.Fatalf("history ended %d messages early", n)
	}
	again, err := c.Send(ctx, "room", "message 5", parley.WithClientMsgID(last.ClientMsgID),
		parley.WithMetadata(map[string]string{"n": "5"}))
	if err != nil || !again.Duplicate || again.Seq != last.Seq || again.MsgID != last.MsgID {
		t.Fatalf("repeat: %+v, %v; want a duplicate of %+v", again, err, last)
	}
	if _, err := c.Send(ctx, "room", "other", parley.WithClientMsgID(last.ClientMsgID)); !errors.Is(err, parley.ErrClientMsgIDReused) {
		t.Fatalf("another payload under a used id: %v", err)
	}
}

func scenarioEditAndRecall(t *testing.T, _ backend, c *parley.Client) {
	ctx := testContext(t)
	first, err := c.Send(ctx, "room", "frist")
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	sub := subscribe(t, c, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	if _, err := c.Edit(ctx, "room", first.MsgID, "first"); err != nil {
		t.Fatalf("edit: %v", err)
	}
	if e := nextEvent(t, sub); e.Kind != parley.EventEdited || e.Seq != 2 || e.Message.GetContent() != "first" {
		t.Fatalf("got %s %q, want the edit", e.Kind, e.Message.GetContent())
	}
	if _, err := c.Recall(ctx, "room", first.MsgID); err != nil {
		t.Fatalf("recall: %v", err)
	}
	if e := nextEvent(t, sub); e.Kind != parley.EventRecalled || e.Seq != 3 || e.Message.GetContent() != "" {
		t.Fatalf("got %s %q, want the tombstone", e.Kind, e.Message.GetContent())
	}
	again, err := c.Recall(ctx, "room", first.MsgID)
	if err != nil || again.Seq != 3 || !again.Duplicate {
		t.Fatalf("second recall: %+v, %v", again, err)
	}
	if _, err := c.Edit(ctx, "room", first.MsgID, "late"); !errors.Is(err, parley.ErrRecalled) {
		t.Fatalf("edit of a recalled message: %v", err)
	}
	if _, err := c.Get(ctx, "room", "no-such-message"); !errors.Is(err, parley.ErrNotFound) {
		t.Fatalf("get of nothing: %v", err)
	}
	if m, err := c.Get(ctx, "room", first.MsgID); err != nil || m.GetChangedSeq() != 3 {
		t.Fatalf("get: %v, %v", m, err)
	}
}

// scenarioResume has a writer and a reader go through crashes of the server: the reader must see every entry once and
// in order, and the log must hold every message once.
func scenarioResume(t *testing.T, b backend, c *parley.Client) {
	ctx := testContext(t)
	const total, crashes = 60, 4
	sub := subscribe(t, c, parley.FromStart("room"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= total; i++ {
			if _, err := c.Send(ctx, "room", fmt.Sprintf("message %d", i)); err != nil {
				t.Errorf("send %d: %v", i, err)
				return
			}
		}
	})
	for i := range crashes {
		first := int64(i*total/(crashes+1)) + 1
		wantEntries(t, sub, "room", first, first+total/(crashes+1)-1)
		b.Kill()
		b.Restart()
	}
	wantEntries(t, sub, "room", total*crashes/(crashes+1)+1, total)
	wg.Wait()
	wantQuiet(t, sub)
	n := 0
	for m, err := range c.History(ctx, "room", parley.AfterSeq(0)) {
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		if n++; m.GetContent() != fmt.Sprintf("message %d", n) {
			t.Fatalf("place %d holds %q", n, m.GetContent())
		}
	}
	if n != total {
		t.Fatalf("the log holds %d messages, want %d", n, total)
	}
	if p, ok := sub.Position("room"); !ok || p.Seq != total || p.Epoch == "" {
		t.Fatalf("position %+v, %v; want seq %d", p, ok, total)
	}
}
