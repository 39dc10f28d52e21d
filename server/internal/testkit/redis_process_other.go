//go:build !linux

package testkit

import "syscall"

// boundToUs can bind a child's life to ours on Linux only. Elsewhere only the test's cleanup ends it.
func boundToUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
