//go:build !linux

package redisproc

import (
	"os/exec"
	"strconv"
	"strings"
)

// runs reports whether the process is a redis-server that was started for this socket.
func runs(pid int, socket string) bool {
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // a number
	return err == nil && strings.Contains(string(out), socket)
}
