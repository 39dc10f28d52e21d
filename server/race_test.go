//go:build race

package server_test

// raceCost is the factor by which the race detector, which this build has, slows code down at most.
// A million dots in a token cost 250 to 300 ms with it.
const raceCost = 8
