// Package leftovers compares the objects on a node before and after: every kind that a connected pod could leave
// behind.
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

// Places lists what a snapshot covers; empty fields are skipped.
type Places struct {
	Namespaces  map[string]string // label -> path; "" = the caller's own
	Directories []string
	Processes   map[string]int // label -> process id
	Agent       string         // the agent's socket: leases
	Dataplane   string         // the dataplane's binary API socket
}

// Snapshot has one line per object: its kind, its place, and its identity. The same line may stand for several objects,
// such as descriptors.
type Snapshot struct {
	objects map[string]int
	// unfinished lists pending work of the kernel, such as duplicate address detection.
	unfinished []string
	// Cooling names free addresses in their cool-down; they do not count as left over.
	Cooling []string
}

// Take makes a snapshot of all places.
func Take(ctx context.Context, p Places) (Snapshot, error) {
	s := Snapshot{objects: map[string]int{}}
	var errs []error
	// Descriptors first: the other functions open connections.
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

// Len returns the number of objects.
func (s Snapshot) Len() int {
	sum := 0
	for _, n := range s.objects {
		sum += n
	}
	return sum
}

// Kinds returns the number of objects of each kind.
func (s Snapshot) Kinds() map[string]int {
	kinds := map[string]int{}
	for line, n := range s.objects {
		kind, _, _ := strings.Cut(line, " ")
		kinds[kind] += n
	}
	return kinds
}

// Since returns the sorted differences to before: "+ link host weft0 ..." and "- link ...".
func (s Snapshot) Since(before Snapshot) []string {
	lines := append(more(s.objects, before.objects, "+ "), more(before.objects, s.objects, "- ")...)
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return lines
}

// more returns the lines that many has more often than few.
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

// interval is the time between two snapshots.
const interval = 50 * time.Millisecond

// Settle takes snapshots until one equals before or the timeout is over, and returns the last: the kernel and closing
// connections need some time.
func Settle(ctx context.Context, p Places, before Snapshot, timeout time.Duration) (Snapshot, error) {
	return Until(ctx, p, timeout, func(s Snapshot) bool { return len(s.Since(before)) == 0 })
}

// alike is the number of equal snapshots in a row that count as steady.
const alike = 4

// Steady takes snapshots until several in a row are equal and the kernel has no pending work, and returns the last. It
// returns an error after the timeout.
func Steady(ctx context.Context, p Places, timeout time.Duration) (Snapshot, error) {
	var last Snapshot
	var restless []string
	taken := 0
	same := 0
	began := time.Now()
	s, err := Until(ctx, p, timeout, func(s Snapshot) bool {
		restless = append(s.unfinished, s.Since(last)...)
		last = s
		taken++
		if same++; len(restless) > 0 {
			same = 1
		}
		return same >= alike
	})
	if same < alike {
		err = errors.Join(
			fmt.Errorf("no %[3]d of %[1]d snapshots in %[2]s are equal and in a row: %[4]q", taken,
				time.Since(began).Round(time.Millisecond), alike, restless),
			err)
	}
	return s, err
}

// fewest is the minimum number of snapshots: the machine may be suspended for the whole timeout, and shows its settled
// state only afterwards.
const fewest = 20

// Until takes snapshots until one is enough or the timeout is over, and returns the last.
func Until(ctx context.Context, p Places, timeout time.Duration, enough func(Snapshot) bool) (Snapshot, error) {
	over := time.Now().Add(timeout)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for taken := 1; ; taken++ {
		s, err := Take(ctx, p)
		if err == nil && enough(s) {
			return s, nil
		}
		if time.Now().After(over) && (err != nil || taken >= fewest) {
			return s, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// add records one object.
func (s *Snapshot) add(kind, where, format string, args ...any) {
	s.objects[kind+" "+where+" "+fmt.Sprintf(format, args...)]++
}
