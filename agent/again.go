package agent

// again says at which ticks what was refused is tried again: ever more rarely, as long as nothing changes. The zero value
// does at the next tick.
type again struct {
	pause int // ticks between the last try and the next one
	left  int // of them
}

// longestPause is that of what stays refused, in ticks: 5 minutes.
const longestPause = 30

// tick reports whether it is time.
func (g *again) tick() bool {
	if g.left--; g.left > 0 {
		return false
	}
	g.pause = min(max(2*g.pause, 1), longestPause)
	g.left = g.pause
	return true
}

// reset makes it the next tick.
func (g *again) reset() { *g = again{} }
