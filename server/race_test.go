//go:build race

package server_test

// raceCost is the factor by which the race detector, which this build has, slows code down.
const raceCost = 5

// raceCPU is that factor for code that goes through many small elements, which is the slowest: a
// body of 24,000 elements in JSON costs 13 ms of processor time without the race detector, and 209
// to 261 ms with it.
const raceCPU = 20
