package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	parley "github.com/parleyhq/parley/sdk/go"
)

// watchers are subscribers to all channels: one that moves between the nodes, whose log is the
// first, and one that stays on each node.
type watchers struct {
	logs   []*log
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// log is the messages that one subscriber received, by channel, in order of arrival.
type log struct {
	name string

	mu       sync.Mutex // guards the fields below
	messages map[string][]line
	count    int
	err      error
}

func watch(ctx context.Context, addrs []string, token string, days []day) (*watchers, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watchers{cancel: cancel}
	for _, addr := range append([]string{strings.Join(addrs, ",")}, addrs...) {
		client, err := parley.New(addr, parley.WithToken(token))
		if err != nil {
			w.close()
			return nil, err
		}
		from := []parley.SubscribeOption{parley.FromStart(all)}
		for _, d := range days {
			from = append(from, parley.FromStart(d.channel))
		}
		l := &log{name: addr, messages: make(map[string][]line)}
		w.logs = append(w.logs, l)
		w.done.Go(func() {
			defer client.Close()
			for e, err := range client.Subscribe(ctx, from...).Events() {
				if l.take(e, err); err != nil {
					return
				}
			}
		})
	}
	return w, nil
}

func (w *watchers) close() {
	w.cancel()
	w.done.Wait()
}

func (l *log) take(e parley.Event, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.err = errors.Join(l.err, err)
	case e.Kind == parley.EventSent:
		got := l.messages[e.ChannelID]
		if e.Seq != int64(len(got))+1 {
			l.err = errors.Join(l.err, fmt.Errorf("%s: entry %d of %s came as number %d", l.name, e.Seq, e.ChannelID, len(got)+1))
		}
		m := e.Message
		l.messages[e.ChannelID] = append(got, line{m.GetClientMsgId(), m.GetFromId(), m.GetContent()})
		l.count++
	case e.Kind != parley.EventChannelState:
		l.err = errors.Join(l.err, fmt.Errorf("%s: an event of kind %v for %s", l.name, e.Kind, e.ChannelID))
	}
}

// state returns the numbers of messages received in all channels (count) and in one (of), and the
// errors so far.
func (l *log) state(channel string) (count, of int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, len(l.messages[channel]), l.err
}

// reached waits until the moving subscriber has received n messages of the channel of all days.
func (w *watchers) reached(ctx context.Context, n int) error {
	return w.await(ctx, w.logs[:1], func(_, of int) bool { return of >= n })
}

// complete waits until every subscriber has received every message twice: in the channel of all
// days and in its day's. total is the number of messages.
func (w *watchers) complete(ctx context.Context, total int, _ []day) error {
	return w.await(ctx, w.logs, func(count, _ int) bool { return count >= 2*total })
}

func (w *watchers) await(ctx context.Context, logs []*log, enough func(count, of int) bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		waiting := ""
		for _, l := range logs {
			count, of, err := l.state(all)
			if err != nil {
				return err
			}
			if !enough(count, of) {
				waiting = fmt.Sprintf("%s has %d messages, %d of them in %s", l.name, count, of, all)
			}
		}
		if waiting == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), waiting)
		}
	}
}

// verify compares the messages of each subscriber with the files.
func (w *watchers) verify(days []day) error {
	w.close()
	for _, l := range w.logs {
		for _, d := range days {
			if err := same(l.messages[d.channel], d.lines); err != nil {
				return fmt.Errorf("%s, %s: %w", l.name, d.channel, err)
			}
		}
		if err := merged(l.messages[all], days); err != nil {
			return fmt.Errorf("%s, %s: %w", l.name, all, err)
		}
		if err := same(l.messages[all], w.logs[0].messages[all]); err != nil {
			return fmt.Errorf("%s and %s differ: %w", l.name, w.logs[0].name, err)
		}
	}
	return nil
}

func same(got, want []line) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("message %d is %q, want %q", i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d messages, want %d", len(got), len(want))
	}
	return nil
}

// merged checks that a channel contains all days, each in its own order.
func merged(got []line, days []day) error {
	byFile := make(map[string][]line)
	for _, m := range got {
		file, _, _ := strings.Cut(m.id, ":")
		byFile[file] = append(byFile[file], m)
	}
	n := 0
	for _, d := range days {
		file, _, _ := strings.Cut(d.lines[0].id, ":")
		if err := same(byFile[file], d.lines); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		n += len(d.lines)
	}
	if n != len(got) {
		return fmt.Errorf("%d messages, want %d", len(got), n)
	}
	return nil
}

// verifyStore reads MongoDB directly and compares it with the files, and the channel of all days
// also with the delivered messages.
func verifyStore(ctx context.Context, uri string, days []day, delivered *log) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetReadConcern(readconcern.Majority()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	db := client.Database("parley")
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^messages_"}}}})
	if err != nil {
		return err
	}
	stored := make(map[string][]line)
	for _, name := range names {
		inOrder := options.Find().SetSort(bson.D{{Key: "channel_id", Value: 1}, {Key: "seq", Value: 1}})
		cursor, err := db.Collection(name).Find(ctx, bson.D{}, inOrder)
		if err != nil {
			return err
		}
		for cursor.Next(ctx) {
			var e struct {
				Channel string `bson:"channel_id"`
				Seq     int    `bson:"seq"`
				ID      string `bson:"client_msg_id"`
				From    string `bson:"from_id"`
				Content string `bson:"content"`
			}
			if err := cursor.Decode(&e); err != nil {
				return err
			}
			if e.Seq != len(stored[e.Channel])+1 {
				return fmt.Errorf("store: %s has entry %d as number %d", e.Channel, e.Seq, len(stored[e.Channel])+1)
			}
			stored[e.Channel] = append(stored[e.Channel], line{e.ID, e.From, e.Content})
		}
		if err := cursor.Err(); err != nil {
			return err
		}
	}
	for _, d := range days {
		if err := same(stored[d.channel], d.lines); err != nil {
			return fmt.Errorf("store, %s: %w", d.channel, err)
		}
	}
	if err := same(stored[all], delivered.messages[all]); err != nil {
		return fmt.Errorf("store and subscribers, %s: %w", all, err)
	}
	return nil
}
