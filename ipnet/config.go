package ipnet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Config is what a [Network] is made of. Only Pools are needed, or Blocks: pods then wait for SetPools and SetBlocks.
type Config struct {
	Pools          []ipam.Pool         // a pod gets an address of each family that has pools
	NamespacePools map[string][]string // by namespace of Kubernetes, the names of the pools for its pods
	NodePools      []string            // names of the pools for pods whose namespace has none
	Blocks         bool                // addresses of custom networks are several nodes', and this one has blocks of them
	LinkTypes      LinkTypes           // until SetLinkTypes says what the dataplane can make

	// What custom networks are numbered with, and the defaults: 100 to 2^32-2, 1 to 2^24-1, 100 to 2^24-1.
	Tables, BridgeDomains, VNIs IDs

	Memif  MemifLimits
	Secret func(allocation string) secret.Text // of an allocation of memifs, "" if there is none such; nil: the node has no memifs

	CoolDown    time.Duration // of released addresses; default 30 s, negative: none
	MTU         int           // of all interfaces, bytes; default: what the tunnels leave of the uplink's
	MaxSegment  int           // the largest packet that veths carry for segmentation by the dataplane, bytes; 0: the kernel's
	HostLink    string        // the name that the link to the dataplane has on the node; default weft0
	PodVRFTable uint32        // table of the pods' VRF; default 1

	PodQueues    int // pairs, of the links of pods that do not say how many; default 1
	MaxPodQueues int // the most that a pod can ask for of a link; default 4

	AllowIPForwarding bool // pods' kernels forward packets
	NoDefaultRoutes   bool // pods reach by their main interface the node's pools only, and not everything

	IPMasq        bool           // what pods send out of the cluster gets the node's address
	IPMasqExclude []netip.Prefix // others that see pods' own addresses, masked

	// How pods of other nodes are reached. Only custom networks whose VNI was chosen reach them: one that a node
	// chooses for itself is not the other nodes'.
	Tunnel     string // TunnelVXLAN4, TunnelVXLAN6, or TunnelNone, the default
	UplinkMTU  int    // of the way to other nodes, bytes; default 1500
	Uplink     string // without tunnels: the link of the node's kernel by which other nodes are reached; "": they are not
	VNI        uint32 // of the network default; default 10
	VXLANPort  uint16 // default wire.VXLANPort
	TunnelLink string // the name that the link for tunnel packets has on the node; default weft-vtep0

	Card *wire.Card // the network card that the dataplane owns, with the node's addresses; nil: the kernel keeps it

	TunnelVRFTable uint32 // table of the VRF that routes tunnel packets; default 2
	MeshDomain     uint32 // the bridge domain of the network default's tunnels; default the last of BridgeDomains

	Now func() time.Time // default time.Now
	Log *slog.Logger     // default: none
}

func (c Config) withDefaults() Config {
	c.Tunnel = cmp.Or(c.Tunnel, TunnelNone)
	c.MTU = cmp.Or(c.MTU, c.uplinkMTU()-encapsulation[c.Tunnel])
	c.VNI = cmp.Or(c.VNI, 10)
	c.VXLANPort = cmp.Or(c.VXLANPort, wire.VXLANPort)
	c.HostLink, c.TunnelLink = cmp.Or(c.HostLink, "weft0"), cmp.Or(c.TunnelLink, usualTunnelLink)
	c.PodVRFTable, c.TunnelVRFTable = cmp.Or(c.PodVRFTable, 1), cmp.Or(c.TunnelVRFTable, 2)
	c.LinkTypes = c.LinkTypes.withDefaults()
	c.PodQueues, c.MaxPodQueues = cmp.Or(c.PodQueues, 1), cmp.Or(c.MaxPodQueues, 4)
	c.Memif = c.Memif.withDefaults()
	c.Tables = cmp.Or(c.Tables, IDs{100, 1<<32 - 2})
	c.BridgeDomains = cmp.Or(c.BridgeDomains, IDs{1, 1<<24 - 1})
	c.VNIs = cmp.Or(c.VNIs, IDs{100, 1<<24 - 1})
	c.MeshDomain = cmp.Or(c.MeshDomain, c.BridgeDomains.Last)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if len(c.Pools) == 0 && !c.Blocks {
		return errors.New("at least one pool of addresses is needed")
	}
	if least := leastMTU(c.pools().families()); c.MTU < least || c.MTU > 65535 {
		return fmt.Errorf("MTU %d is not within %d to 65535", c.MTU, least)
	}
	if !isLinkName(c.HostLink) {
		return fmt.Errorf("host link %q is not a name for a link of Linux", c.HostLink)
	}
	if !isLinkName(c.TunnelLink) || c.TunnelLink == c.HostLink {
		return fmt.Errorf("tunnel link %q is not a name for a link of Linux, or that of the host link", c.TunnelLink)
	}
	if err := c.LinkTypes.validate(); err != nil {
		return err
	}
	if c.PodQueues < 1 || c.PodQueues > c.MaxPodQueues || c.MaxPodQueues > wire.MaxQueues {
		return fmt.Errorf("%d pairs of queues, at most %d: they are within 1 and %d", c.PodQueues, c.MaxPodQueues, wire.MaxQueues)
	}
	if err := c.validateTunnel(); err != nil {
		return err
	}
	return c.validateChoices()
}

func isLinkName(name string) bool {
	return len(name) <= 15 && !strings.ContainsAny(name, "/: \t\n") && name != "." && name != ".."
}

func (c Config) validateChoices() error {
	for _, p := range c.Pools {
		if strings.Contains(p.Name, ":") {
			return fmt.Errorf("pool %s: a name without colons is needed", p.Name)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(c.NamespacePools)) {
		for _, name := range c.NamespacePools[namespace] {
			if c.pools().pool(name) == nil {
				return fmt.Errorf("namespace %s: there is no pool %q", namespace, name)
			}
		}
	}
	for _, name := range c.NodePools {
		if c.pools().pool(name) == nil {
			return fmt.Errorf("node: there is no pool %q", name)
		}
	}
	return nil
}

func (c Config) pools() *pools {
	return &pools{all: c.Pools, ofNamespace: c.NamespacePools, ofNode: c.NodePools}
}

// leastMTU is the lowest that families bear.
func leastMTU(families []wire.Family) int {
	if slices.Contains(families, wire.IP6) {
		return 1280 // below that the kernel takes IPv6 off the link
	}
	return 576 // what every IPv4 host must take
}

// familiesOf are those of the prefixes, IPv4 first.
func familiesOf(prefixes []netip.Prefix) []wire.Family {
	var families []wire.Family
	for _, f := range []wire.Family{wire.IP4, wire.IP6} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return wire.FamilyOf(p.Addr()) == f }) {
			families = append(families, f)
		}
	}
	return families
}

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

// option is one that a pod asks for, with the most that the node allows.
type option struct {
	name        string
	asked, most int
}

// allowed refuses the first of the options of which more is asked for than the node allows.
func allowed(ev *pod.AddPod, w wish, options ...option) error {
	for _, o := range options {
		if o.asked > o.most {
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: annotation %s: interface %s: %s %d is more than this node allows, which is %d",
				ev, pod.AnnotationOptions, w.name, o.name, o.asked, o.most)
		}
	}
	return nil
}

// chooseQueues decides how many queues the pod's end of a tap or veth has. Those of a tap are pairs.
func (n *Network) chooseQueues(ev *pod.AddPod, w *wish) error {
	rx, tx, most := w.rxQueues, w.txQueues, n.config.MaxPodQueues
	if err := allowed(ev, *w, option{"rxQueues", rx, most}, option{"txQueues", tx, most}); err != nil {
		return err
	}
	if w.kind == pod.TypeTap {
		rx, tx = cmp.Or(rx, tx), cmp.Or(tx, rx)
	}
	w.rxQueues, w.txQueues = several(cmp.Or(rx, n.config.PodQueues)), several(cmp.Or(tx, n.config.PodQueues))
	return nil
}

// several is a number of queues as it is recorded: one is what every link has.
func several(queues int) int {
	if queues == 1 {
		return 0
	}
	return queues
}
