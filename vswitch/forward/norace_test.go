//go:build !race

package forward_test

const memoryMayGo = true
