//go:build !linux

package rig

import (
	"context"
	"errors"
	"net"
)

var errLinuxOnly = errors.New("network namespaces require Linux")

// InNamespace reports whether this process was started by RunInNamespace.
func InNamespace() bool { return false }

// RunInNamespace requires Linux; it returns an error.
func RunInNamespace() (code int, err error) { return 1, errLinuxOnly }

// Namespace exists on Linux only.
type Namespace struct{}

// NewNamespace requires Linux; it returns an error.
func NewNamespace(context.Context, string) (*Namespace, error) { return nil, errLinuxOnly }

func (*Namespace) enter() error { return errLinuxOnly }

// Do requires Linux; it returns an error.
func (*Namespace) Do(func() error) error { return errLinuxOnly }

// Listen requires Linux; it returns an error.
func (*Namespace) Listen(context.Context, string) (net.Listener, error) { return nil, errLinuxOnly }

// IP requires Linux; it returns an error.
func (*Namespace) IP(context.Context, ...string) error { return errLinuxOnly }

func (*Namespace) path() string { return "" }

// Close does nothing.
func (*Namespace) Close() error { return nil }

func runIP(context.Context, ...string) error { return errLinuxOnly }
