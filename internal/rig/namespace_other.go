//go:build !linux

package rig

import (
	"context"
	"errors"
	"net"
)

var errLinuxOnly = errors.New("network namespaces are there on Linux only")

// InNamespace reports whether this process was started by RunInNamespace.
func InNamespace() bool { return false }

// RunInNamespace needs Linux.
func RunInNamespace() (code int, err error) { return 1, errLinuxOnly }

// Namespace is there on Linux only.
type Namespace struct{}

// NewNamespace needs Linux.
func NewNamespace(context.Context, string) (*Namespace, error) { return nil, errLinuxOnly }

func (*Namespace) enter() error { return errLinuxOnly }

// Do needs Linux.
func (*Namespace) Do(func() error) error { return errLinuxOnly }

// Listen needs Linux.
func (*Namespace) Listen(context.Context, string) (net.Listener, error) { return nil, errLinuxOnly }

// IP needs Linux.
func (*Namespace) IP(context.Context, ...string) error { return errLinuxOnly }

func (*Namespace) path() string { return "" }

// Close does nothing.
func (*Namespace) Close() error { return nil }

func runIP(context.Context, ...string) error { return errLinuxOnly }
