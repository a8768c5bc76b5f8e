//go:build race

package forward_test

// canCutMemory is false with the race detector: it makes atomic accesses in C, where a page fault ends the program. The
// tests also run without the detector.
const canCutMemory = false
