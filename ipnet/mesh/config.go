package mesh

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Config configures [Host], [Mesh] and [Externals].
type Config struct {
	LinkTypes LinkTypes // until SetLinkTypes sets the types that the dataplane can make
	HostLink  string    // the name that the link to the dataplane has on the node; default weft0
	// the largest packet that veths carry for segmentation by the dataplane, bytes; 0: the kernel's
	MaxSegment int

	IPMasq        bool           // packets of pods that leave the cluster get the node's address
	IPMasqExclude []netip.Prefix // destinations outside the cluster that see pods' own addresses, masked

	// Uplink is the link of the node's kernel towards other nodes, without tunnels; "": they are not reached.
	Uplink         string
	VXLANPort      uint16 // default wire.VXLANPort
	TunnelLink     string // the name that the link for tunnel packets has on the node; default weft-vtep0
	TunnelVRFTable uint32 // table of the VRF that routes tunnel packets; default 2

	Card *wire.Card // the network card that the dataplane owns, with the node's addresses; nil: the kernel keeps it
}

func (c Config) withDefaults() Config {
	c.LinkTypes = c.LinkTypes.withDefaults()
	c.HostLink = cmp.Or(c.HostLink, desired.DefaultHostLink)
	c.TunnelLink = cmp.Or(c.TunnelLink, desired.DefaultTunnelLink)
	c.VXLANPort = cmp.Or(c.VXLANPort, wire.VXLANPort)
	c.TunnelVRFTable = cmp.Or(c.TunnelVRFTable, 2)
	return c
}

func (c Config) validate() error {
	if !desired.IsLinkName(c.HostLink) {
		return fmt.Errorf("host link %q is not a name for a link of Linux", c.HostLink)
	}
	if !desired.IsLinkName(c.TunnelLink) || c.TunnelLink == c.HostLink {
		return fmt.Errorf("tunnel link %q is not a name for a link of Linux, or that of the host link", c.TunnelLink)
	}
	return c.LinkTypes.validate()
}

// LinkTypes are the types of the links that neither a pod nor its runtime chooses.
type LinkTypes struct {
	Pod   string // of pods' main interfaces: pod.TypeTap, the default, or pod.TypeVeth
	Host  string // of the link between the node and the dataplane, likewise
	NoTap string // why the dataplane cannot make taps; "": it can
}

func (t LinkTypes) withDefaults() LinkTypes {
	t.Pod = cmp.Or(t.Pod, pod.TypeTap)
	t.Host = cmp.Or(t.Host, pod.TypeTap)
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

// LinkTypes returns the link types that are in use.
func (h *Host) LinkTypes() LinkTypes { return *h.linkTypes.Load() }

// SetLinkTypes replaces the link types of the configuration, once the dataplane's abilities are known. Pods that are
// connected keep their links; the host link changes with the next full resync.
func (h *Host) SetLinkTypes(t LinkTypes) error {
	t = t.withDefaults()
	if err := t.validate(); err != nil {
		return err
	}
	h.linkTypes.Store(&t)
	return nil
}

// ownsCard reports whether the dataplane owns the node's network card.
func (c Config) ownsCard() bool { return c.Card != nil }
