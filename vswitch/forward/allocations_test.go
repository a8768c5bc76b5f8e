package forward

import "testing"

const measurements = 3

// allocations returns the least average number of allocations of f in several measurements: goroutines of other tests
// may allocate during one.
func allocations(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range measurements - 1 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
