//go:build race

package server_test

// raceCost is the factor by which the race detector slows code down.
const raceCost = 5
