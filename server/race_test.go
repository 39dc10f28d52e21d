//go:build race

package server_test

// raceCost is how much longer code takes on a processor that the race detector watches.
const raceCost = 5
