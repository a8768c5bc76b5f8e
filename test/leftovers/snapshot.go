// Package leftovers compares what there is on a node before and after: every kind of object that wiring a pod could leave behind.
package leftovers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Places says where to look. What is left out is not looked at.
type Places struct {
	Namespaces  map[string]string // name, for people -> path; "" is the caller's own
	Directories []string
	Processes   map[string]int // role, for people -> process id
	Agent       string         // the agent's socket: leases
	Dataplane   string         // the dataplane's binary API socket
}

// Snapshot is all that was found, an object a line: its kind, where it is, and what tells it from others. The same line
// may stand for several objects, such as descriptors.
type Snapshot struct {
	objects map[string]int
	// unfinished is what the kernel is still at, such as looking for duplicates of an address.
	unfinished []string
	// Cooling names free addresses in their cool-down; they do not count as left over.
	Cooling []string
}

// Take looks at all places.
func Take(ctx context.Context, p Places) (Snapshot, error) {
	s := Snapshot{objects: map[string]int{}}
	var errs []error
	// Descriptors first: what follows makes connections.
	for role, pid := range p.Processes {
		errs = append(errs, s.addDescriptors(role, pid))
	}
	for name, path := range p.Namespaces {
		errs = append(errs, s.addNamespace(name, path))
	}
	for _, dir := range p.Directories {
		errs = append(errs, s.addFiles(dir))
	}
	if p.Agent != "" {
		errs = append(errs, converse(ctx, p.Agent, func() error { return s.addLeases(ctx, p.Agent) }))
	}
	if p.Dataplane != "" {
		errs = append(errs, converse(ctx, p.Dataplane, func() error { return s.addDataplane(ctx, p.Dataplane) }))
	}
	slices.Sort(s.Cooling)
	return s, errors.Join(errs...)
}

// Len is the number of objects.
func (s Snapshot) Len() int {
	sum := 0
	for _, n := range s.objects {
		sum += n
	}
	return sum
}

// Kinds counts the objects of each kind.
func (s Snapshot) Kinds() map[string]int {
	kinds := map[string]int{}
	for line, n := range s.objects {
		kind, _, _ := strings.Cut(line, " ")
		kinds[kind] += n
	}
	return kinds
}

// Since lists what came and what went since before, sorted: "+ link host weft0 ..." and "- link ...".
func (s Snapshot) Since(before Snapshot) []string {
	lines := append(more(s.objects, before.objects, "+ "), more(before.objects, s.objects, "- ")...)
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return lines
}

// more lists what many has more of than few.
func more(many, few map[string]int, sign string) []string {
	var lines []string
	for _, line := range slices.Sorted(maps.Keys(many)) {
		switch n := many[line] - few[line]; {
		case n == 1:
			lines = append(lines, sign+line)
		case n > 1:
			lines = append(lines, fmt.Sprintf("%s%s (%d times)", sign, line, n))
		}
	}
	return lines
}

// interval is the time between two looks.
const interval = 50 * time.Millisecond

// Settle takes snapshots until one is like before or patience is over, and gives the last: the kernel and closing
// connections need a moment.
func Settle(ctx context.Context, p Places, before Snapshot, patience time.Duration) (Snapshot, error) {
	return Until(ctx, p, patience, func(s Snapshot) bool { return len(s.Since(before)) == 0 })
}

// alike is how many looks in a row must show the same.
const alike = 4

// Steady takes snapshots until some in a row are alike and the kernel is at nothing, and gives the last. It fails if
// that does not come true within patience.
func Steady(ctx context.Context, p Places, patience time.Duration) (Snapshot, error) {
	var last Snapshot
	var restless []string
	looks, same := 0, 0
	began := time.Now()
	s, err := Until(ctx, p, patience, func(s Snapshot) bool {
		restless = append(s.unfinished, s.Since(last)...)
		last = s
		looks++
		if same++; len(restless) > 0 {
			same = 1
		}
		return same >= alike
	})
	if same < alike {
		err = errors.Join(fmt.Errorf("of %d looks within %s no %d in a row are alike: %q", looks, time.Since(began).Round(time.Millisecond), alike, restless), err)
	}
	return s, err
}

// fewest is how many looks there are at the least: patience means time in which the machine runs, and one that was taken away
// for all of it has not shown yet what it settles to.
const fewest = 20

// Until takes snapshots until one is enough or patience is over, and gives the last.
func Until(ctx context.Context, p Places, patience time.Duration, enough func(Snapshot) bool) (Snapshot, error) {
	over := time.Now().Add(patience)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for looks := 1; ; looks++ {
		s, err := Take(ctx, p)
		if err == nil && enough(s) {
			return s, nil
		}
		if time.Now().After(over) && (err != nil || looks >= fewest) {
			return s, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// add notes one object.
func (s *Snapshot) add(kind, where, format string, args ...any) {
	s.objects[kind+" "+where+" "+fmt.Sprintf(format, args...)]++
}
