package main

import (
	"context"
	"fmt"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// devices is the number of devices, each of which is connected most of the time.
const devices = 40

// startDevices starts the devices and 5 reads of presence a second.
func (l *load) startDevices(ctx context.Context) {
	for d := range devices {
		l.repeat(ctx, func(ctx context.Context, i int) error { return l.connect(ctx, d, i) })
	}
	l.each(ctx, 200*time.Millisecond, func(ctx context.Context, i int) {
		var err error
		if i%2 == 0 {
			_, err = l.presence.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: watched(i)})
		} else {
			_, err = l.presence.ListOnlineUsers(ctx, &parleyv1.ListOnlineUsersRequest{})
		}
		_ = l.count(ctx, "presence reads", err)
	})
}

// watched returns ten users, of whom one is never online.
func watched(i int) []string {
	users := []string{"nobody"}
	for k := range 9 {
		users = append(users, user((i+k)%devices))
	}
	return users
}

// connect connects a device for 2 to 6 seconds. Every other time it disconnects on purpose, and
// otherwise its connection is lost. Every third time it stays away for 2 s, so that its user is
// shown offline.
func (l *load) connect(ctx context.Context, device, i int) error {
	stay, leave := context.WithCancel(ctx)
	defer leave()
	stream, err := l.devices[device].Connect(stay, &parleyv1.ConnectRequest{
		Platform: parleyv1.Platform(1 + device%9), DeviceId: fmt.Sprint("device-", device), Watch: watched(device + i),
	})
	if err != nil {
		return l.count(ctx, "connections", err)
	}
	defer func() { _ = stream.Close() }()
	var ending *time.Timer
	left := make(chan struct{})
	for stream.Receive() {
		info := stream.Msg().GetInfo()
		if info == nil {
			continue
		}
		id := info.GetStream().GetStreamId()
		ending = time.AfterFunc(time.Duration(2+(device+i)%5)*time.Second, func() {
			defer close(left)
			defer leave()
			if i%2 == 0 {
				_, err := l.devices[device].Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: id})
				_ = l.count(ctx, "disconnections", err)
			}
		})
	}
	if ending != nil && !ending.Stop() {
		<-left
	}
	err = l.count(ctx, "connections", ended(stay, stream.Err()))
	if i%3 == 0 {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
	return err
}
