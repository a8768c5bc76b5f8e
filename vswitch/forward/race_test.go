//go:build race

package forward_test

// memoryMayGo: the race detector makes atomic accesses in C, where a fault ends the program, so memory that the engine
// uses cannot be taken from it. The tests run without the detector as well.
const memoryMayGo = false
