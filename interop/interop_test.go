// Package interop_test calls the API with third-party clients, so that an assumption of Parley's
// own SDKs is not mistaken for the protocol. The clients are grpcurl, buf curl, and programs on
// grpcio, connect-es and grpc-java, whose code is generated from the bundle of protos that `make
// protos` builds. Every client makes the same calls and must get the same results, which report
// contains.
//
// The package also checks the sources of other clients: the bundle, the names of classes in Java
// and Kotlin, and docs/api. grpcurl and buf come from tools/go.mod, the other tools from
// hack/interop-deps.sh.
package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/servertest"
)

// limit bounds the run of one client or compiler. It is far more than either takes on a busy
// machine.
const limit = 10 * time.Minute

// report contains the results of a client. Each client has its own channel, topic and group.
type report struct {
	// Health is the answer of the health service. Services are the names that reflection lists,
	// sorted. Both are empty for clients that have no code for them.
	Health   string   `json:"health"`
	Services []string `json:"services"`
	Server   server   `json:"server"`
	// Denied is the error of CreateTopic without the capability admin. Partitions is the number of
	// partitions of the topic that CreateTopic with it returns.
	Denied     failure `json:"denied"`
	Partitions int     `json:"partitions"`
	// Sent and Repeated are the answers to the same SendMessage. Listed is the content of the
	// channel's messages.
	Sent     sendResult `json:"sent"`
	Repeated sendResult `json:"repeated"`
	Listed   []string   `json:"listed"`
	// Info is the first frame of Subscribe from the start of the channel. Events are all events up
	// to and including the sent message.
	Info   info    `json:"info"`
	Events []event `json:"events"`
	Edited edited  `json:"edited"`
	// Refused is the error of SendMessage without content.
	Refused failure `json:"refused"`
	// Presence is the presence of a user who was never online, and the first frame of Connect.
	Presence presence `json:"presence"`
	// Job is the delivery of Consume. BidiJob is that of StreamingConsume; it is nil for clients
	// without bidirectional streams. Received is the delivery of Receive.
	Job      *job `json:"job"`
	BidiJob  *job `json:"bidi_job"`
	Received *job `json:"received"`
	// Acked is the number of acknowledged messages in the statistics of the topic.
	Acked int64 `json:"acked"`
}

type server struct {
	Version         bool  `json:"version"`
	MaxContentBytes int32 `json:"max_content_bytes"`
	Queues          bool  `json:"queues"`
}

// failure is the error of a call: its code, as a gRPC number, and the content of its ErrorDetail.
type failure struct {
	Code   int32  `json:"code"`
	Reason int32  `json:"reason"`
	Field  string `json:"field"`
}

type sendResult struct {
	Seq       int64 `json:"seq"`
	Duplicate bool  `json:"duplicate"`
}

type info struct {
	StreamID  bool `json:"stream_id"`
	Heartbeat bool `json:"heartbeat"`
}

type event struct {
	Kind    string `json:"kind"`
	Seq     int64  `json:"seq"`
	FromSeq int64  `json:"from_seq"`
	// HeadSeq is set for a channel's state, Content for a message.
	HeadSeq int64  `json:"head_seq"`
	Content string `json:"content"`
}

type edited struct {
	Content    string `json:"content"`
	Edited     bool   `json:"edited"`
	ChangedSeq int64  `json:"changed_seq"`
}

type presence struct {
	// User and Platforms are the state that GetPresence returns. Watched has the users in the first
	// frame of Connect.
	User      string   `json:"user"`
	Platforms int      `json:"platforms"`
	StreamID  bool     `json:"stream_id"`
	Login     bool     `json:"login"`
	Watched   []string `json:"watched"`
}

type job struct {
	Payload string `json:"payload"`
	Attempt int32  `json:"attempt"`
	Acked   bool   `json:"acked"`
}

// client is a third-party client that calls the server, and its capabilities.
type client struct {
	name string
	// both is set if it supports bidirectional streams. checks is set if it can call the health and
	// the reflection service.
	both, checks bool
	// slow is set if it is skipped under -short.
	slow bool
	// see makes all calls to a server and returns their results. name is the name of the channel, the
	// topic and the group to use.
	see func(t *testing.T, s target, name string) report
}

// want returns the expected report of a client.
func (c client) want() report {
	r := report{
		Server:     server{Version: true, MaxContentBytes: 65536, Queues: true},
		Denied:     failure{Code: 7, Reason: 4},
		Partitions: 1,
		Sent:       sendResult{Seq: 1},
		Repeated:   sendResult{Seq: 1, Duplicate: true},
		Listed:     []string{"hello"},
		Info:       info{StreamID: true, Heartbeat: true},
		Events:     []event{{Kind: "state", HeadSeq: 1}, {Kind: "sent", Seq: 1, FromSeq: 1, Content: "hello"}},
		Edited:     edited{Content: "hello again", Edited: true, ChangedSeq: 2},
		Refused:    failure{Code: 3, Reason: 1, Field: "content"},
		Presence:   presence{User: "nobody", StreamID: true, Login: true, Watched: []string{"nobody"}},
		Job:        &job{Payload: "one", Attempt: 1, Acked: true},
		Received:   &job{Payload: "three", Attempt: 1, Acked: true},
		Acked:      2,
	}
	if c.both {
		r.BidiJob = &job{Payload: "two", Attempt: 1, Acked: true}
		r.Acked = 3
	}
	if c.checks {
		r.Health = "SERVING"
		r.Services = []string{
			"grpc.health.v1.Health", "parley.v1.AdminService", "parley.v1.MessageService", "parley.v1.PresenceService", "parley.v1.QueueService", "parley.v1.ServerService",
		}
	}
	return r
}

// target is a server for clients to call.
type target struct {
	url, addr string
	// token has every capability. weak lacks the capability admin.
	token, weak string
}

// TestClients makes the same calls to one server with every client. Each must get the expected
// results.
func TestClients(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	_, addr, _ := strings.Cut(s.URL, "://")
	to := target{url: s.URL, addr: addr, token: s.Token, weak: s.Mint("stranger", "send", "history", "subscribe")}

	clients := append(append(lines(), nodes()...), python(), java())
	for i, c := range clients {
		if c.slow && testing.Short() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.see(t, to, fmt.Sprintf("client-%d", i))
			if diff := cmp.Diff(c.want(), got); diff != "" {
				t.Errorf("it saw something else (-want +got):\n%s", diff)
			}
		})
	}
}

// root returns the root folder of this repository.
var root = sync.OnceValue(func() string {
	dir, err := rig.Root()
	if err != nil {
		panic(err)
	}
	return dir
})

// command runs a program in dir with additional environment variables, and returns its standard
// output.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := execute(dir, env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func execute(dir string, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}

// tools are the paths of programs that tools/go.mod pins, by name. They are built on first use.
var tools = map[string]func() (string, error){"buf": pinned("buf"), "grpcurl": pinned("grpcurl")}

func pinned(name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path, err := execute(root(), []string{"GOWORK=off"}, "go", "tool", "-modfile=tools/go.mod", "-n", name)
		return strings.TrimSpace(path), err
	})
}

// seeded fills buf's module cache as make does, and returns the environment variable that sets its
// path, as NAME=value.
var seeded = sync.OnceValues(func() (string, error) {
	env := "BUF_CACHE_DIR=" + filepath.Join(root(), ".cache", "buf")
	_, err := execute(root(), []string{env}, "hack/seed-buf-cache.sh")
	return env, err
})

// buf runs buf in the root of this repository and returns its standard output.
func buf(args ...string) (string, error) {
	cache, err := seeded()
	if err != nil {
		return "", err
	}
	path, err := tools["buf"]()
	if err != nil {
		return "", err
	}
	return execute(root(), []string{cache}, path, args...)
}

// fetched returns the absolute path of a file that hack/interop-deps.sh sets up. It fails the test
// if the file is missing.
func fetched(t *testing.T, path string) string {
	t.Helper()
	path = filepath.Join(root(), path)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run make interop-deps: %v", err)
	}
	return path
}

// program runs a client program that prints its report as JSON, and returns the report.
func program(t *testing.T, to target, name, dir string, env []string, args ...string) report {
	t.Helper()
	env = append(env, "PARLEY_URL="+to.url, "PARLEY_ADDR="+to.addr, "PARLEY_TOKEN="+to.token, "PARLEY_WEAK_TOKEN="+to.weak, "PARLEY_NAME="+name)
	out := command(t, dir, env, args[0], args[1:]...)
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	var r report
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("%s printed %q: %v", args, out, err)
	}
	return r
}
