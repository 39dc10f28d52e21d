package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/hack/internal/user"
	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

// patience is how long a call may take with all its repeats, across every fault.
const patience = 2 * time.Minute

// clients are the clients of a fleet.
type clients struct {
	fleet *rig.Fleet
	token string // of the importer
	// tokens are those of the senders: only the sender can edit a message.
	tokens *user.Tokens
	// nodes are clients of one node each. all uses any node and fails over.
	nodes []*parley.Client
	all   *parley.Client
	// raw are clients of one node each, for what the SDK does not show.
	raw  []parleyv1connect.MessageServiceClient
	http *http.Client
}

func newClients(fleet *rig.Fleet) (_ *clients, err error) {
	c := &clients{fleet: fleet}
	if c.token, err = fleet.Token("importer", nil); err != nil {
		return nil, err
	}
	c.tokens = user.NewTokens(fleet, c.token, map[string][]string{"*": {"send", "history"}})
	if c.all, err = c.dial(strings.Join(fleet.Addresses(), ",")); err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c.http = &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: 30 * time.Second}
	for _, addr := range fleet.Addresses() {
		client, err := c.dial(addr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.nodes = append(c.nodes, client)
		c.raw = append(c.raw, parleyv1connect.NewMessageServiceClient(c.http, "http://"+addr,
			connect.WithReadMaxBytes(16<<20), connect.WithInterceptors(c.tokens)))
	}
	return c, nil
}

func (c *clients) dial(addrs string) (*parley.Client, error) {
	return parley.New(addrs, parley.WithToken(c.token), parley.WithCallTimeout(patience), parley.WithInterceptors(c.tokens))
}

// close closes idle connections.
func (c *clients) close() {
	for _, client := range append([]*parley.Client{c.all}, c.nodes...) {
		client.Close()
	}
	c.http.CloseIdleConnections()
}

// retry makes a call of a raw client until it succeeds, fails permanently, or has taken too long.
func retry[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		res, err := call(ctx)
		switch connect.CodeOf(err) {
		case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeAborted, connect.CodeResourceExhausted,
			connect.CodeCanceled: // a connection that a killed node reset
		default:
			return res, err
		}
		if verdict.Sleep(ctx, 200*time.Millisecond) != nil {
			return res, err
		}
	}
}

// list returns a page of a channel from a node.
func (c *clients) list(ctx context.Context, node int, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	return retry(ctx, func(ctx context.Context) (*parleyv1.ListMessagesResponse, error) {
		return c.raw[node].ListMessages(ctx, req)
	})
}

// oldest returns the oldest entry of a channel that can be read, as a node knows it.
func (c *clients) oldest(ctx context.Context, node int, channel string) (int64, error) {
	page, err := c.list(ctx, node, &parleyv1.ListMessagesRequest{ChannelId: channel, PageSize: 1})
	if err != nil {
		return 0, fmt.Errorf("the boundary of %s: %w", channel, err)
	}
	return page.GetOldestSeq(), nil
}

// boundarySlack is how long a node may go on to answer an earlier boundary than another one. It is
// a second, and more on a machine that is busy.
const boundarySlack = 10 * time.Second

// expired reports whether an entry is before the boundary of its channel, which a node may not know
// yet.
func (c *clients) expired(ctx context.Context, node int, channel string, seq int64) (bool, error) {
	for began := time.Now(); ; {
		oldest, err := c.oldest(ctx, node, channel)
		if err != nil || seq < oldest || time.Since(began) > boundarySlack {
			return seq < oldest, err
		}
		if err := verdict.Sleep(ctx, 100*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// reasonOf returns the reason of an error of a raw client.
func reasonOf(err error) parleyv1.ErrorReason {
	if failed, ok := errors.AsType[*connect.Error](err); ok {
		for _, d := range failed.Details() {
			if v, err := d.Value(); err == nil {
				if detail, ok := v.(*parleyv1.ErrorDetail); ok {
					return detail.GetReason()
				}
			}
		}
	}
	return parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}
