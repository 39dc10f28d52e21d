package testkit

import "syscall"

// boundToUs has the kernel kill a child when the thread that forked it ends, as it does however this process ends: no
// cleanup runs after a SIGKILL or a test's timeout.
func boundToUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
