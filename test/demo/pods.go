package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

// attachedPod is a pod with the result of its ADD: the main interface first, then the others in the annotation's order.
type attachedPod struct {
	*node.Pod
	links []node.Link
}

// main returns the addresses of the main interface.
func (w *attachedPod) main() []netip.Addr { return w.links[0].Bare() }

// on returns the interface with a name.
func (w *attachedPod) on(name string) node.Link {
	for _, l := range w.links {
		if l.Name == name {
			return l
		}
	}
	return node.Link{}
}

// cniTimeout is the timeout of one call of a plugin.
const cniTimeout = 20 * time.Second

// prepare makes the sandboxes. C's has a default route, which Weft must not replace, so that its ADD fails late.
func (d *demo) prepare(context.Context) (err error) {
	if d.runtime, err = d.node.Runtime(d.out); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		pod  *attachedPod
	}{{"a", &d.a}, {"b", &d.b}, {"c", &d.c}, {"d", &d.d}, {"e", &d.e}} {
		if p.pod.Pod, err = d.node.NewPod(p.name); err != nil {
			return err
		}
		p.pod.Annotations = map[string]string{customInterfaces: "blue0/" + dataplane.Tap() + "/blue, red0/veth/red"}
	}
	d.printf("node %s, process %d", d.node.Dir, os.Getpid())
	return netns.Do(d.c.Netns, occupyDefaultRoute)
}

// occupyDefaultRoute adds default routes through another link of the sandbox.
func occupyDefaultRoute() error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "other0"}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("make a link for C: %w", err)
	}
	link, err := netlink.LinkByName("other0")
	if err != nil {
		return fmt.Errorf("make a link for C: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("make a link for C: %w", err)
	}
	for _, everything := range []*net.IPNet{
		{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	} {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything}); err != nil {
			return fmt.Errorf("make a default route for C: %w", err)
		}
	}
	return nil
}

func (d *demo) start(ctx context.Context) (err error) {
	if err := d.node.StartAgent(ctx); err != nil {
		return err
	}
	d.printf("weft-agent %d, dataplane %d", d.node.AgentPID(), d.node.DataplanePID())
	if d.before, err = leftovers.Steady(ctx, d.places(), settling); err != nil {
		return err
	}
	d.printf("snapshot: %d objects of %d kinds", d.before.Len(), len(d.before.Kinds()))
	return nil
}

// places lists all places where a pod could leave something.
func (d *demo) places() leftovers.Places {
	return leftovers.Places{
		Namespaces: map[string]string{
			"node": "",
			"a":    d.a.Netns,
			"b":    d.b.Netns,
			"c":    d.c.Netns,
			"d":    d.d.Netns,
			"e":    d.e.Netns,
		},
		Directories: d.node.Watched(),
		Processes:   map[string]int{"weft-agent": d.node.AgentPID(), "dataplane": d.node.DataplanePID()},
		Agent:       d.node.Socket(),
		Dataplane:   d.node.DataplaneSocket(),
	}
}

func (d *demo) addPods(ctx context.Context) error {
	for _, p := range []*attachedPod{&d.a, &d.b} {
		if err := d.add(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) add(ctx context.Context, p *attachedPod) error {
	ctx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	begun := time.Now()
	result, err := d.runtime.Add(ctx, p.Pod)
	if err != nil {
		return fmt.Errorf("ADD of pod %s: %w", p.Name, err)
	}
	took := time.Since(begun)
	if p.links, err = node.Links(result); err != nil {
		return err
	}
	for _, l := range p.links {
		if len(l.Addresses) != 2 {
			return fmt.Errorf("ADD of pod %s: %s has the addresses %v, want one of each family", p.Name, l.Name,
				l.Addresses)
		}
		d.printf("ADD %s: %-6s %s and %s", p.Name, l.Name, l.Addresses[0], l.Addresses[1])
	}
	d.printf("ADD %s: in %s", p.Name, short(took))
	return nil
}

// failC adds C and compares the node with its state before.
func (d *demo) failC(ctx context.Context) error {
	before, err := leftovers.Steady(ctx, d.places(), settling)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	_, failure := d.runtime.Add(call, d.c.Pod)
	if failure == nil {
		return errors.New("ADD of pod c succeeded, although its sandbox has a default route")
	}
	d.printf("ADD c: %s", failure)
	if strings.Contains(failure.Error(), "\n") {
		return errors.New("the error of ADD has more than one line")
	}
	if err := d.showUndone(ctx); err != nil {
		return err
	}
	return d.compare(ctx, before)
}

// compare returns an error for differences to before, except neighbours that existing pods have learned since.
func (d *demo) compare(ctx context.Context, before leftovers.Snapshot) error {
	differ := func(now leftovers.Snapshot) []string { return slices.DeleteFunc(now.Since(before), d.isLearned) }
	after, err := leftovers.Until(ctx, d.places(), settling, func(now leftovers.Snapshot) bool {
		return len(differ(now)) == 0
	})
	if err != nil {
		return err
	}
	if lines := differ(after); len(lines) != 0 {
		return fmt.Errorf("%d objects differ from before:\n  %s", len(lines), strings.Join(lines, "\n  "))
	}
	d.printf("%d objects compared, of %d kinds: no difference", after.Len(), len(after.Kinds()))
	if len(after.Cooling) != 0 {
		d.printf("not in use and cooling: %s", strings.Join(after.Cooling, " "))
	}
	return nil
}

// isLearned reports whether a difference is a neighbour that a pod's kernel has learned on an interface of another pod:
// kernels probe their neighbours some seconds after traffic. Neighbours of the node count as differences.
func (d *demo) isLearned(line string) bool {
	if !strings.HasPrefix(line, "+ neighbour ") || strings.HasPrefix(line, "+ neighbour node ") ||
		!strings.HasSuffix(line, " learned") {
		return false
	}
	for _, p := range []*attachedPod{&d.a, &d.b, &d.d, &d.e} {
		for _, l := range p.links {
			if l.Mac != "" && strings.Contains(line, " at "+l.Mac+" ") {
				return true
			}
		}
	}
	return false
}

func (d *demo) check(ctx context.Context) error {
	for _, p := range []*attachedPod{&d.a, &d.b, &d.d, &d.e} {
		call, cancel := context.WithTimeout(ctx, cniTimeout)
		err := d.runtime.Check(call, p.Pod)
		cancel()
		if err != nil {
			return fmt.Errorf("CHECK of pod %s: %w", p.Name, err)
		}
		d.printf("CHECK %s: ok", p.Name)
	}
	return nil
}

// leave deletes the pods, also C, as a runtime does after a failed ADD, and compares with the first snapshot.
func (d *demo) leave(ctx context.Context) error {
	for _, p := range []*attachedPod{&d.a, &d.b, &d.c, &d.d, &d.e} {
		call, cancel := context.WithTimeout(ctx, cniTimeout)
		begun := time.Now()
		err := d.runtime.Del(call, p.Pod)
		cancel()
		if err != nil {
			return fmt.Errorf("DEL of pod %s: %w", p.Name, err)
		}
		d.printf("DEL %s: in %s", p.Name, short(time.Since(begun)))
	}
	if err := d.forgetMemif(); err != nil {
		return err
	}
	return d.compare(ctx, d.before)
}
