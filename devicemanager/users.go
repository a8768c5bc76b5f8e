package devicemanager

import (
	"sync"

	"github.com/weftnet/weft/pod"
)

// users records which attachments use which allocations. An allocation with users is not released.
type users struct {
	mu           sync.Mutex
	byAllocation map[string]map[pod.Key]pod.ID // attachments with their pods, by the allocation's id
}

func newUsers() *users { return &users{byAllocation: make(map[string]map[pod.Key]pod.ID)} }

// use records that an attachment uses an allocation.
func (u *users) use(id string, key pod.Key, by pod.ID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byAllocation[id] == nil {
		u.byAllocation[id] = make(map[pod.Key]pod.ID)
	}
	u.byAllocation[id][key] = by
}

// leave is the inverse of use.
func (u *users) leave(id string, key pod.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byAllocation[id], key)
	if len(u.byAllocation[id]) == 0 {
		delete(u.byAllocation, id)
	}
}

// user returns a pod with an attachment that uses the allocation.
func (u *users) user(id string) (by pod.ID, used bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, by := range u.byAllocation[id] {
		return by, true
	}
	return pod.ID{}, false
}

// usedBy returns the allocations that an attachment uses, each with the attachment's pod.
func (u *users) usedBy(key pod.Key) map[string]pod.ID {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := make(map[string]pod.ID)
	for id, keys := range u.byAllocation {
		if by, ok := keys[key]; ok {
			used[id] = by
		}
	}
	return used
}
