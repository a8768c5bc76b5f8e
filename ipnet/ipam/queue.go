package ipam

import "container/heap"

// queue is a heap of released entries: the one that is free first, and so longest idle, stands at the head. A heap, so
// that an undone lease finds its old place.
type queue []*entry

// Len is the number of entries; with Less, Swap, Push and Pop it makes a heap.
func (q queue) Len() int { return len(q) }

// Less orders by time, then by the order of release.
func (q queue) Less(i, j int) bool {
	if !q[i].FreeAt.Equal(q[j].FreeAt) {
		return q[i].FreeAt.Before(q[j].FreeAt)
	}
	return q[i].order < q[j].order
}

// Swap keeps the entries' indexes.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is heap's; use put.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop is heap's; use take.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}

func (q *queue) put(e *entry) { heap.Push(q, e) }

func (q *queue) take(e *entry) { heap.Remove(q, e.index) }
