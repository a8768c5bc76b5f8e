package ipnet

import (
	"cmp"
	"fmt"

	"github.com/weftnet/weft/pod"
)

// LinkTypes are the types of the links that neither a pod nor its runtime chooses.
type LinkTypes struct {
	Pod   string // of pods' main interfaces: pod.TypeTap, the default, or pod.TypeVeth
	Host  string // of the link between the node and the dataplane, likewise
	NoTap string // why the dataplane cannot make taps; "": it can
}

func (t LinkTypes) withDefaults() LinkTypes {
	t.Pod, t.Host = cmp.Or(t.Pod, pod.TypeTap), cmp.Or(t.Host, pod.TypeTap)
	return t
}

func (t LinkTypes) validate() error {
	for what, kind := range map[string]string{"pod interface": t.Pod, "host link": t.Host} {
		if kind != pod.TypeTap && kind != pod.TypeVeth {
			return fmt.Errorf("%s %q is neither tap nor veth", what, kind)
		}
	}
	return nil
}

// SetLinkTypes replaces the link types of the configuration, once the dataplane's abilities are known. Pods that are connected
// keep their links; the host link changes with the next full resync.
func (n *Network) SetLinkTypes(t LinkTypes) error {
	t = t.withDefaults()
	if err := t.validate(); err != nil {
		return err
	}
	n.linkTypes.Store(&t)
	return nil
}

// checkLinkType rejects an interface that the dataplane of this node cannot make.
func (n *Network) checkLinkType(ev fmt.Stringer, w wish) error {
	if why := n.linkTypes.Load().NoTap; w.kind == pod.TypeTap && why != "" {
		return pod.Errorf(pod.CodeRefused, "%s: interface %s: the dataplane of this node cannot create taps: %s; request a veth instead", ev, w.name, why)
	}
	return nil
}
