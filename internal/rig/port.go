package rig

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePort gives a port that is free on host now. It lies below those that the kernel gives to outgoing connections, so
// that none of these takes it while its server is down between two lives.
func freePort(host string) (string, error) {
	for range 100 {
		addr := net.JoinHostPort(host, strconv.Itoa(10_000+rand.IntN(22_000)))
		if portFree(addr) {
			return addr, nil
		}
	}
	return "", errors.New("no port is free on " + host)
}

func portFree(addr string) bool {
	l, err := net.Listen("tcp", addr) //nolint:noctx // it does not wait
	return err == nil && l.Close() == nil
}

// FreeAddrs gives n addresses on loopback whose ports are free now.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, 0, n)
	for len(addrs) < n {
		addr, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}
