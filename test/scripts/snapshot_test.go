package scripts_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/leftovers"
)

// settling is how long the kernel may take to remove objects and close connections.
const settling = time.Minute

// snapshotCommand: snapshot NAME records all links, addresses, routes, rules, neighbours, files, leases, dataplane
// objects, and open descriptors of dataplane and agent. It omits programs that do not run.
func snapshotCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "snapshot NAME")
	}
	s := on(ts)
	taken, err := leftovers.Steady(context.Background(), s.places(), settling)
	ts.Check(err)
	s.snapshots[args[0]] = seen{taken, s.paths()}
}

// sameCommand: same NAME fails if objects were added or removed since that snapshot. It ignores sandboxes that were
// made or removed since.
func sameCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	if len(args) != 1 {
		usage(ts, "same NAME")
	}
	check(ts, neg, s.compare(args[0]))
}

func (s *stage) compare(name string) error {
	before, ok := s.snapshots[name]
	if !ok {
		return fmt.Errorf("unknown snapshot %s", name)
	}
	return eventually(settling, func() error {
		after, err := leftovers.Take(context.Background(), s.places())
		if err != nil {
			return err
		}
		if lines := s.relevant(after.Since(before.Snapshot), before.sandboxes); len(lines) > 0 {
			return fmt.Errorf("%d objects differ:\n  %s", len(lines), strings.Join(lines, "\n  "))
		}
		return nil
	})
}

// places lists all places where a pod can leave something.
func (s *stage) places() leftovers.Places {
	p := leftovers.Places{
		Namespaces:  map[string]string{"node": s.home},
		Directories: s.node.Watched(),
		Processes:   map[string]int{},
	}
	maps.Copy(p.Namespaces, s.paths())
	if pid := s.node.AgentPID(); pid != 0 {
		p.Processes["weft-agent"], p.Agent = pid, s.node.Socket()
	}
	if pid := s.node.DataplanePID(); pid != 0 {
		p.Processes["weft-vswitch"], p.Dataplane = pid, s.node.DataplaneSocket()
	}
	return p
}

// paths are the namespace paths of sandboxes that have one.
func (s *stage) paths() map[string]string {
	paths := map[string]string{}
	for name, b := range s.sandboxes {
		if !b.removed {
			paths[name] = b.path
		}
	}
	return paths
}

// relevant omits lines about sandboxes that have changed since the snapshot.
func (s *stage) relevant(lines []string, before map[string]string) []string {
	now := s.paths()
	return slices.DeleteFunc(lines, func(line string) bool {
		fields := strings.Fields(line) // + kind where ...
		for name := range s.sandboxes {
			_, was := before[name]
			if _, is := now[name]; was != is && (fields[2] == name || fields[2] == s.sandboxes[name].path) {
				return true
			}
		}
		return false
	})
}
