package interop_test

import (
	"encoding/json"
	"testing"

	"github.com/parleyhq/parley/server/servertest"
)

// TestCurl works on a queue with plain curl, over HTTP/1.1 and without a stream: it receives a
// message, returns it for a retry, receives it again, and acknowledges it.
func TestCurl(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	call := func(method, request string, answer any) {
		t.Helper()
		out := command(t, root(), nil, "curl", "-sS", "--http1.1", "--fail-with-body", "--max-time", "60",
			"-H", "Authorization: Bearer "+s.Token, "--json", request, s.URL+"/"+method)
		if err := json.Unmarshal([]byte(out), answer); err != nil {
			t.Fatalf("%s answered %q: %v", method, out, err)
		}
	}
	var none struct{}
	call(admin+"CreateTopic", `{"topic": {"name": "mail", "partitions": 2}}`, &none)
	call(admin+"CreateGroup", `{"topic": "mail", "group": {"name": "send"}}`, &none)
	var produced struct {
		Results []struct {
			Produced struct {
				MessageID string `json:"messageId"` //nolint:tagliatelle // the API's name
			} `json:"produced"`
		} `json:"results"`
	}
	call(queues+"Produce", `{"topic": "mail", "messages": [{"key": "ann", "payload": "aGVsbG8="}]}`, &produced)

	type received struct {
		SessionID  string `json:"sessionId"` //nolint:tagliatelle // the API's name
		Deliveries []struct {
			Token     string `json:"token"`
			MessageID string `json:"messageId"` //nolint:tagliatelle // the API's name
			Key       string `json:"key"`
			Payload   []byte `json:"payload"`
			Attempt   int    `json:"attempt"`
		} `json:"deliveries"`
	}
	receive := func(attempt int) (session, token string) {
		t.Helper()
		var got received
		call(queues+"Receive", `{"topic": "mail", "group": "send", "wait": "30s"}`, &got)
		if len(got.Deliveries) != 1 || len(produced.Results) != 1 {
			t.Fatalf("received %+v of %+v", got, produced)
		}
		d := got.Deliveries[0]
		if d.MessageID != produced.Results[0].Produced.MessageID || d.Key != "ann" || string(d.Payload) != "hello" || d.Attempt != attempt {
			t.Errorf("attempt %d: received %+v", attempt, d)
		}
		return got.SessionID, d.Token
	}
	settle := func(method string, request any) {
		t.Helper()
		text, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		var settled struct {
			Results []map[string]any `json:"results"`
		}
		call(queues+method, string(text), &settled)
		if len(settled.Results) != 1 || len(settled.Results[0]) != 0 {
			t.Errorf("%s: %+v", method, settled)
		}
	}

	session, token := receive(1)
	settle("Nack", map[string]any{
		"sessionId": session, "items": []any{map[string]any{"token": token, "reason": "busy", "retry": map[string]any{"delay": "0.1s"}}},
	})
	session, token = receive(2)
	settle("Ack", map[string]any{"sessionId": session, "tokens": []string{token}})

	var empty received
	call(queues+"Receive", `{"topic": "mail", "group": "send"}`, &empty)
	if empty.SessionID == "" || len(empty.Deliveries) != 0 {
		t.Errorf("after the ack it received %+v", empty)
	}
}
