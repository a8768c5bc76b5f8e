package ipnet

import "fmt"

// IDs is a range of numbers of the dataplane, both ends included.
type IDs struct{ First, Last uint32 }

// lowest is the lowest number that is not taken; what says of what.
func (r IDs) lowest(what string, taken map[uint32]bool) (uint32, error) {
	for id := uint64(r.First); id <= uint64(r.Last); id++ {
		if !taken[uint32(id)] {
			return uint32(id), nil
		}
	}
	return 0, fmt.Errorf("no %s from %d to %d is free: remove a network", what, r.First, r.Last)
}
