//go:build !race

package server_test

// raceCost and raceCPU are 1 because this build has no race detector, which slows code down.
const (
	raceCost = 1
	raceCPU  = 1
)
