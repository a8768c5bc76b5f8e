package policy

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// cluster has the namespaces with their pods, and the nodes.
type cluster struct {
	namespaces map[string]*namespaceState
	nodes      map[string]nodeState
	addresses  map[netip.Addr]int // number of pods that have it
	clients    ClientMap
}

type namespaceState struct {
	labels labels.Set
	pods   map[string]*podState
}

type nodeState struct {
	labels    labels.Set
	addresses []netip.Prefix
}

type podState struct {
	Pod
	groups map[*group]struct{}
	lists  map[string]Lists // by interface, as compiled last
	excess []Excess         // likewise
	// interfaces for which the namespace has no rules left on the node, as compiled last
	starved  map[string]lacking
	demanded []demandKey            // keys of demands of its lists, as compiled last
	named    map[string][]NamedPort // the ports by name; nil: they are few
	span     int                    // the largest number of ports with the same name, at least 1

	compiled bool // at least once
}

func newCluster() cluster {
	return cluster{
		namespaces: make(map[string]*namespaceState),
		nodes:      make(map[string]nodeState),
		addresses:  make(map[netip.Addr]int),
	}
}

// pods yields the pods of all namespaces.
func (c *cluster) pods() iter.Seq[*podState] {
	return func(yield func(*podState) bool) {
		for _, ns := range c.namespaces {
			for _, p := range ns.pods {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// namespace returns a namespace, which may be unknown yet: then it has no labels.
func (c *cluster) namespace(name string) *namespaceState {
	ns := c.namespaces[name]
	if ns == nil {
		ns = &namespaceState{pods: make(map[string]*podState)}
		c.namespaces[name] = ns
	}
	return ns
}

func (c *cluster) dropEmpty(name string) {
	if ns := c.namespaces[name]; ns != nil && ns.labels == nil && len(ns.pods) == 0 {
		delete(c.namespaces, name)
	}
}

func (c *cluster) pod(id ID) *podState {
	if ns := c.namespaces[id.Namespace]; ns != nil {
		return ns.pods[id.Name]
	}
	return nil
}

func equalPods(a, b *Pod) bool {
	return a.Local == b.Local && maps.Equal(a.Labels, b.Labels) && equalEnds(a, b)
}

// equalEnds reports whether peers reach both pods alike.
func equalEnds(a, b *Pod) bool {
	return slices.Equal(a.Ports, b.Ports) && slices.EqualFunc(a.Interfaces, b.Interfaces, func(x, y Interface) bool {
		return x.Name == y.Name && x.Main == y.Main && slices.Equal(x.Networks, y.Networks) &&
			slices.Equal(x.Addresses, y.Addresses) &&
			slices.Equal(x.Claimed, y.Claimed)
	})
}

// endOf looks an end up. An address of a pod's main interface, and its client address, is the pod.
func (c *cluster) endOf(x End) (end, error) {
	if x.Pod == (ID{}) {
		own := x.Address
		if a, isClient := c.clients.PodOf(own); isClient {
			own = a
		}
		p, nic := c.byAddress(own)
		return end{p, nic, x.Address}, nil
	}
	p := c.pod(x.Pod)
	if p == nil {
		return end{}, fmt.Errorf(
			"pod %s is unknown, has no address yet, has ended, or uses its node's network: policies do not select it",
			x.Pod)
	}
	for n := range p.Interfaces {
		if i := &p.Interfaces[n]; i.Name == x.Interface || x.Interface == "" && i.Main {
			return end{pod: p, nic: i}, nil
		}
	}
	if x.Interface == "" {
		return end{}, fmt.Errorf("pod %s has no main interface yet", x.Pod)
	}
	return end{}, fmt.Errorf("pod %s has no interface %s", x.Pod, x.Interface)
}

func (c *cluster) byAddress(a netip.Addr) (*podState, *Interface) {
	for p := range c.pods() {
		for n := range p.Interfaces {
			if i := &p.Interfaces[n]; i.Main && slices.Contains(i.Addresses, a) {
				return p, i
			}
		}
	}
	return nil, nil
}
