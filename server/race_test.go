//go:build race

package server_test

// raceCost is the factor by which the race detector, which this build has, slows code down.
const raceCost = 5
