package redisproc

import (
	"fmt"
	"os"
	"strings"
)

// runs reports whether the process runs and is a redis-server that was started for this socket.
// Redis rewrites its title to `redis-server unixsocket:<path>`.
func runs(pid int, socket string) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || strings.Contains(string(status), ") Z ") {
		return false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(cmdline), socket)
}
