package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// channels is the number of channels.
	channels = 20
	// senders is the number of senders, each of which sends ten messages a second.
	senders = 5
	// subscribers is the number of subscribers that are there at a time, and followed how many
	// channels each of them follows.
	subscribers, followed = 10, 5
)

func channel(i int) string { return fmt.Sprintf("soak-%02d", i%channels) }

// message is a message that was sent.
type message struct {
	channel, id string
	seq         int64
}

// recent is the messages that were sent last.
type recent struct {
	mu   sync.Mutex
	sent [256]message // a ring; guarded by mu
	n    int          // how many were ever sent; guarded by mu
}

func (r *recent) add(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[r.n%len(r.sent)] = m
	r.n++
}

// get returns the message that was sent as number back before the last one. ok is false if there is
// none.
func (r *recent) get(back int) (m message, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if back >= min(r.n, len(r.sent)) {
		return message{}, false
	}
	return r.sent[(r.n-1-back)%len(r.sent)], true
}

// startMessages starts 50 sends, 10 edits, 2 recalls and 20 reads a second, and the subscribers.
func (l *load) startMessages(ctx context.Context) {
	for s := range senders {
		l.each(ctx, 100*time.Millisecond, func(ctx context.Context, i int) { l.send(ctx, senders*i+s) })
	}
	l.each(ctx, 100*time.Millisecond, func(ctx context.Context, i int) {
		if m, ok := l.recent.get(i % 100); ok { // recalls are of older ones
			_, err := l.messages.EditMessage(ctx, &parleyv1.EditMessageRequest{
				ChannelId: m.channel, MsgId: m.id, Content: fmt.Sprint(i, " ", text),
			})
			_ = l.count(ctx, "edits", err)
		}
	})
	l.each(ctx, 500*time.Millisecond, func(ctx context.Context, _ int) {
		if m, ok := l.recent.get(200); ok {
			_, err := l.messages.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: m.channel, MsgId: m.id})
			_ = l.count(ctx, "recalls", err)
		}
	})
	l.each(ctx, 100*time.Millisecond, func(ctx context.Context, i int) {
		_, err := l.messages.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: channel(i)})
		_ = l.count(ctx, "lists", err)
	})
	l.each(ctx, 100*time.Millisecond, l.read)
	for s := range subscribers {
		l.repeat(ctx, func(ctx context.Context, i int) error { return l.subscribe(ctx, s, i) })
	}
}

// send sends message i of the run.
func (l *load) send(ctx context.Context, i int) {
	c := channel(i)
	res, err := l.messages.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: c, Content: text})
	if l.count(ctx, "sends", err) == nil {
		l.recent.add(message{c, res.GetMsgId(), res.GetSeq()})
	}
}

// read makes one of the smaller calls.
func (l *load) read(ctx context.Context, i int) {
	m, ok := l.recent.get(i % 200)
	if !ok {
		return
	}
	var err error
	switch i % 4 {
	case 0:
		_, err = l.messages.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: m.channel, MsgId: m.id})
	case 1:
		_, err = l.messages.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: m.channel, Seq: m.seq})
	case 2:
		_, err = l.messages.ListChannels(ctx, &parleyv1.ListChannelsRequest{})
	case 3:
		_, err = l.messages.SendTyping(ctx, &parleyv1.SendTypingRequest{ChannelId: m.channel})
	}
	_ = l.count(ctx, "lists", err)
}

// subscribe follows some channels for 3 to 7 seconds, from the last messages on.
func (l *load) subscribe(ctx context.Context, s, i int) error {
	stay, leave := during(ctx, time.Duration(3+(s+i)%5)*time.Second)
	defer leave()
	req := &parleyv1.SubscribeRequest{}
	for k := range followed {
		position := &parleyv1.ChannelPosition{ChannelId: channel(s + i + 3*k)}
		if m, ok := l.recent.get(10*k + i%100); ok {
			position = &parleyv1.ChannelPosition{ChannelId: m.channel, AfterSeq: &m.seq}
		}
		req.Channels = append(req.Channels, position)
	}
	stream, err := l.messages.Subscribe(stay, req)
	if err == nil {
		for stream.Receive() { // reads what there is
		}
		err = ended(stay, stream.Err())
		_ = stream.Close()
	}
	return l.count(ctx, "subscriptions", err)
}
