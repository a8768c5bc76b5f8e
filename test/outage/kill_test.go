package outage_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

// hostLinks returns the names of the node's links.
func hostLinks(t *testing.T) (names []string) {
	t.Helper()
	links, err := netlink.LinkList()
	must.Succeed(t, err)
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return names
}

// killed is a stage with an agent that is killed, and the objects that exist without pods.
type killed struct {
	*stage
	before leftovers.Snapshot
	links  []string
}

func newKilled(t *testing.T) *killed {
	t.Helper()
	k := &killed{stage: newStage(t)}
	k.start()
	var err error
	k.before, err = leftovers.Steady(t.Context(), k.places(), timeout)
	must.Succeed(t, err)
	k.links = hostLinks(t)
	return k
}

func (k *killed) places() leftovers.Places {
	return leftovers.Places{
		Namespaces: map[string]string{"node": ""},
		Agent:      k.Socket(),
		Dataplane:  k.DataplaneSocket(),
	}
}

// requireNothingLeft removes the sandboxes and compares the node with its state before.
func (k *killed) requireNothingLeft(pods []*node.Pod) {
	k.Helper()
	for _, p := range pods {
		must.Succeed(k.T, p.Remove())
	}
	after, err := leftovers.Settle(k.Context(), k.places(), k.before, timeout)
	must.Succeed(k.T, err)
	if lines := after.Since(k.before); len(lines) > 0 {
		k.Fatalf("left over:\n  %s", strings.Join(lines, "\n  "))
	}
}

// When DEL returns, the kernel may still be deleting links, and the agent is killed then.
func TestLinksAreDeletedWhenTheAgentIsKilledRightAfterDEL(t *testing.T) {
	k := newKilled(t)
	for i := range 5 {
		p, _ := k.add(fmt.Sprintf("answered%d", i))
		must.Succeed(t, k.runtime.Del(t.Context(), p))
		must.Succeed(t, k.KillAgent())
		if now := hostLinks(t); !slices.Equal(now, k.links) {
			t.Errorf("after DEL and the agent's end: links %v, want %v", now, k.links)
		}
		k.start()
		next, _ := k.add(fmt.Sprintf("next%d", i)) // may reuse the names of the deleted links
		must.Succeed(t, k.runtime.Del(t.Context(), next))
		k.requireNothingLeft([]*node.Pod{p, next})
	}
}

// DELs that share a transaction are interrupted at a random moment. A failed DEL is repeated, as runtimes do; a DEL
// that succeeded without an agent is in the queue of DELs, which the next agent executes.
func TestNothingLeaksWhenTheAgentIsKilledDuringDELs(t *testing.T) {
	k := newKilled(t)
	const longest = 60 * time.Millisecond
	atOnce := dataplane.Crowd(6, 3)
	failed := 0
	for round := range 8 {
		var pods []*node.Pod
		for i := range atOnce {
			p, _ := k.add(fmt.Sprintf("cut%d-%d", round, i))
			pods = append(pods, p)
		}
		errs := make([]error, atOnce)
		var dels errgroup.Group
		for i, p := range pods {
			dels.Go(func() error {
				errs[i] = k.runtime.Del(t.Context(), p)
				return nil
			})
		}
		must.Succeed(t, wait(t.Context(), rand.N(longest)))
		must.Succeed(t, k.KillAgent())
		_ = dels.Wait()
		k.start()
		for i, p := range pods {
			if errs[i] != nil {
				failed++
				must.Succeed(t, k.runtime.Del(t.Context(), p))
			}
		}
		eventually(t, "all links are deleted", func() bool { return slices.Equal(hostLinks(t), k.links) })
		k.requireNothingLeft(pods)
	}
	t.Logf("%d DELs failed and were repeated", failed)
}
