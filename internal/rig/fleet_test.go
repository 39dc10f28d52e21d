package rig_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/internal/rig"
)

// caller sends through one node, on a new connection for each call.
type caller struct {
	client parleyv1connect.MessageServiceClient
	token  string
}

func newCaller(t *testing.T, f *rig.Fleet, node int) caller {
	t.Helper()
	token, err := f.Token("tester", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return caller{client: parleyv1connect.NewMessageServiceClient(client, "http://"+f.Addresses()[node]), token: token}
}

func (c caller) send(ctx context.Context, id string) (int64, error) {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+c.token)
	resp, err := c.client.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "room", Content: id, ClientMsgId: id})
	return resp.GetSeq(), err
}

func TestFleet(t *testing.T) {
	t.Parallel()
	f, err := rig.Start(within(t, 2*time.Minute), rig.Options{Namespaced: true, Binary: os.Getenv("PARLEYD")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(f.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory is still there: %v", err)
		}
	})
	nodes := []caller{newCaller(t, f, 0), newCaller(t, f, 1), newCaller(t, f, 2)}
	sent := int64(0)
	send := func(t *testing.T, node int) {
		t.Helper()
		ctx := within(t, 30*time.Second)
		id := fmt.Sprintf("m%d", sent+1)
		for {
			try, cancel := context.WithTimeout(ctx, 3*time.Second)
			seq, err := nodes[node].send(try, id)
			cancel()
			if err == nil {
				if sent++; seq != sent {
					t.Fatalf("message %d has place %d", sent, seq)
				}
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("node %d: %v", node, err)
			}
		}
	}
	for i := range nodes {
		send(t, i)
	}

	t.Run("a cut link to MongoDB stops one node only", func(t *testing.T) {
		for name, cut := range map[string]func(*rig.Proxy){"cut": (*rig.Proxy).Cut, "stalled": (*rig.Proxy).Stall} {
			link := f.Link(1, rig.EngineMongo)
			cut(link)
			// Sends through this node may still succeed, because another node may store the messages for it.
			for ctx := within(t, 10*time.Second); f.Node(1).CheckReady(ctx) == nil; {
				if ctx.Err() != nil {
					t.Fatalf("%s: a node without its store is ready", name)
				}
			}
			send(t, 0)
			link.Heal()
			if err := f.Node(1).Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			send(t, 2)
		}
	})
	t.Run("an isolated node is not reached", func(t *testing.T) {
		if err := f.Node(2).Isolate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.Node(2).CheckReady(within(t, time.Second)); err == nil {
			t.Fatal("an isolated node answered")
		}
		if err := f.Node(2).Rejoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.Node(2).Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, 2)
	})
	t.Run("a killed node and a drained one come back", func(t *testing.T) {
		n := f.Node(0)
		n.Kill()
		<-n.Exited()
		if n.Running() || n.Stop() == nil {
			t.Fatal("it was not killed")
		}
		if err := n.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, 0)
		if err := n.Term(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := n.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, 0)
	})
	t.Run("replies of MongoDB are lost", func(t *testing.T) {
		link := f.Link(0, rig.EngineMongo)
		link.LoseReplies(3, nil)
		for link.Lost() == 0 {
			send(t, 0)
		}
		link.Heal()
	})
	t.Run("the primary dies", func(t *testing.T) {
		primary, err := f.Mongo.Primary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.Mongo.Kill(primary)
		send(t, 0)
		if err := f.Mongo.Restart(t.Context(), primary); err != nil {
			t.Fatal(err)
		}
		if err := f.Mongo.WaitHealthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Mongo.StepDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, 1)
	})
	t.Run("NATS goes and comes back", func(t *testing.T) {
		f.NATS.Kill(0)
		if err := f.NATS.Restart(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		f.NATS.KillAll()
		send(t, 1)
		if err := f.NATS.StartAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range f.Nodes() {
			if err := n.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		send(t, 2)
	})
	t.Run("Redis forgets what came after its saved file", func(t *testing.T) {
		client := f.Redis.Client()
		defer client.Close()
		set := func(key string) {
			t.Helper()
			if err := client.Set(t.Context(), key, "1", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("before")
		saved := filepath.Join(t.TempDir(), "aof")
		if err := f.Redis.SaveAOF(saved); err != nil {
			t.Fatal(err)
		}
		set("after")
		if err := f.Redis.RestoreAOF(saved); err == nil {
			t.Fatal("a running server's file was replaced")
		}
		f.Redis.Kill()
		if err := f.Redis.RestoreAOF(saved); err != nil {
			t.Fatal(err)
		}
		if err := f.Redis.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		client2 := f.Redis.Client()
		defer client2.Close()
		if got := client2.Exists(t.Context(), "before", "after").Val(); got != 1 {
			t.Fatalf("%d of the two keys are there", got)
		}
		if err := f.Redis.FlushAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := client2.DBSize(t.Context()).Val(); got > 50 {
			t.Fatalf("%d keys after a flush", got)
		}
	})
}
