//go:build !race

package forward_test

const canCutMemory = true
