package rig

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// freePort returns an address on host with a free port. No other caller of freePort, in any
// process, gets it while this process lives: tests start servers in several processes at once, and
// a port is free until its server listens. The port is below the range for outgoing connections, so
// none of them takes it while its server is down between two runs.
func freePort(host string) (string, error) {
	for range 100 {
		addr := net.JoinHostPort(host, strconv.Itoa(10_000+rand.IntN(22_000)))
		claimed, err := claim(addr)
		if err != nil {
			return "", err
		}
		if claimed && portFree(addr) {
			return addr, nil
		}
	}
	return "", errors.New("no port is free on " + host)
}

// claim locks a file named after addr until this process ends. It returns false if the lock is
// held, in this process or another.
func claim(addr string) (bool, error) {
	dir := filepath.Join(os.TempDir(), "parley-ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	fd, err := syscall.Open(filepath.Join(dir, addr), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: filepath.Join(dir, addr), Err: err}
	}
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return true, nil // the descriptor stays open, so the lock lasts until the process ends
	}
	_ = syscall.Close(fd)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return false, os.NewSyscallError("flock", err)
}

func portFree(addr string) bool {
	l, err := net.Listen("tcp", addr) //nolint:noctx // it does not wait
	return err == nil && l.Close() == nil
}

// FreeAddrs returns n loopback addresses with free ports. No other call returns them while this
// process lives.
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
