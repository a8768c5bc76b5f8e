package devicemanager

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/weftnet/weft/eventloop"
)

// table has the allocations of this node.
type table struct {
	mu      sync.Mutex
	byID    map[string]*allocation // an allocation in the map is immutable: a change replaces it
	unsaved map[string]bool        // ids of allocations that differ from the state file
}

func newTable() *table {
	return &table{byID: make(map[string]*allocation), unsaved: make(map[string]bool)}
}

// inOrder returns all allocations, oldest first.
func (t *table) inOrder() []*allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byID), func(a, b *allocation) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// find returns the allocation with the given id, or nil.
func (t *table) find(id string) *allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// holders returns the allocations that have the devices, each once, in the order of the devices.
func (t *table) holders(devices []string) []*allocation {
	all := t.inOrder()
	var found []*allocation
	for _, device := range devices {
		for _, a := range all {
			if slices.Contains(a.Devices, device) && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
	}
	return found
}

// swap stores a as the allocation of id, nil deletes it, and returns the previous one.
func (t *table) swap(id string, a *allocation) *allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.byID[id]
	if a == nil {
		delete(t.byID, id)
	} else {
		t.byID[id] = a
	}
	return before
}

// put is swap with an undo when the event is rolled back.
func (t *table) put(id string, a *allocation, txn *eventloop.Txn) {
	before := t.swap(id, a)
	txn.OnRollback(func() error { t.swap(id, before); return nil })
}

// predecessors returns the allocations of the same pod that had the holders' devices before.
func (t *table) predecessors(holders []*allocation) []*allocation {
	var found []*allocation
	for _, a := range t.inOrder() {
		for _, heir := range holders {
			if a.successor == heir.ID {
				found = append(found, a)
			}
		}
	}
	return found
}

// claimed returns the allocations of all claims.
func (t *table) claimed() []*allocation {
	return slices.DeleteFunc(t.inOrder(), func(a *allocation) bool { return a.Claim == nil })
}

// ofClaim returns the allocations of a claim.
func (t *table) ofClaim(uid string) (found []*allocation) {
	for _, a := range t.claimed() {
		if a.Claim.UID == uid {
			found = append(found, a)
		}
	}
	return found
}

// freeSocket returns the lowest unused socket number.
func (t *table) freeSocket() uint32 {
	taken := make(map[uint32]bool)
	for _, a := range t.inOrder() {
		taken[a.Socket] = true
	}
	n := uint32(1)
	for taken[n] {
		n++
	}
	return n
}

// markUnsaved has the next resync save an allocation.
func (t *table) markUnsaved(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsaved[id] = true
}

// isUnsaved reports whether an allocation differs from the state file.
func (t *table) isUnsaved(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsaved[id]
}

// markSaved marks allocations as equal to the state file.
func (t *table) markSaved(all []*allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range all {
		delete(t.unsaved, a.ID)
	}
}
