package linux

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weftnet/weft/kvscheduler"
)

// Overfull records the network namespaces of pods that the agent cannot read, mostly because they have too many
// objects. Their objects count as unchanged. The zero value has no namespaces. Its methods are safe for concurrent use.
type Overfull struct {
	mu sync.Mutex
	of map[netnsID]map[kvscheduler.Kind]error // why the last read of a kind ended early
}

// note records the result of the last read of a kind in a namespace; nil: all objects were read. A nil receiver ignores
// it.
func (o *Overfull) note(netns netnsID, kind kvscheduler.Kind, overfull error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if overfull != nil {
		o.addLocked(netns, kind, overfull)
		return
	}
	delete(o.of[netns], kind)
	if len(o.of[netns]) == 0 {
		delete(o.of, netns)
	}
}

func (o *Overfull) addLocked(netns netnsID, kind kvscheduler.Kind, overfull error) {
	if o.of == nil {
		o.of = make(map[netnsID]map[kvscheduler.Kind]error)
	}
	if o.of[netns] == nil {
		o.of[netns] = make(map[kvscheduler.Kind]error)
	}
	o.of[netns][kind] = overfull
}

// Of returns why objects in a network namespace are not read, with their kinds; nil if all objects are read.
func (o *Overfull) Of(inode, device uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	kinds := o.of[netnsID{inode, device}]
	if len(kinds) == 0 {
		return nil
	}
	sorted := slices.Sorted(maps.Keys(kinds))
	names := make([]string, len(sorted))
	for i, kind := range sorted {
		names[i] = string(kind)
	}
	return fmt.Errorf("%s: %w", strings.Join(names, ", "), kinds[sorted[0]])
}

// Keep forgets all namespaces for which isKept returns false: they are not read any more.
func (o *Overfull) Keep(isKept func(inode, device uint64) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of, func(netns netnsID, _ map[kvscheduler.Kind]error) bool {
		return !isKept(netns.Inode, netns.Device)
	})
}
