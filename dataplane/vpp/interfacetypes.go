package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// maxNamespace is what the API takes of a namespace's path.
const maxNamespace = 63

// maxLinkName is what the kernel takes as a link's name.
const maxLinkName = 15

// newTap makes the request for a tap. A path that is too long for the API is opened and named by our descriptor for it,
// which the dataplane can open as long as it sees our processes: release it after the exchange.
func newTap(name string, v wire.Interface) (r *request, release func(), err error) {
	namespace, release := v.Tap.Namespace, func() {}
	if len(namespace) > maxNamespace {
		f, err := openNamespace(namespace)
		if err != nil {
			return nil, nil, permanent(fmt.Errorf("create tap %s: network namespace: %w", v.Tap.Name, err))
		}
		namespace, release = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), func() { _ = f.Close() }
	}
	ungrouped := v
	ungrouped.GSO = false // until it is set
	what := fmt.Sprintf("tap_create_v3 %s (%s) in the dataplane's own namespace", name, v.Tap.Name)
	if namespace != "" {
		what = fmt.Sprintf("tap_create_v3 %s (%s in network namespace %s)", name, v.Tap.Name, v.Tap.Namespace)
	}
	return ask(what, &tapv2.TapCreateV3{
		ID:           uint32(noIndex),
		UseRandomMac: v.MAC.IsZero(), MacAddress: [6]byte(v.MAC),
		NumRxQueues: queuesOf(v.Tap.Queues), NumTxQueues: queuesOf(v.Tap.Queues), TxRingSz: 256, RxRingSz: 256,
		HostMtuSet: v.Tap.MTU != 0, HostMtuSize: uint32(v.Tap.MTU),
		HostMacAddrSet: !v.Tap.MAC.IsZero(), HostMacAddr: [6]byte(v.Tap.MAC),
		HostNamespaceSet: namespace != "", HostNamespace: namespace,
		HostIfNameSet: true, HostIfName: v.Tap.Name,
		// Without these each packet of a pod is segmented and summed one by one.
		TapFlags: tapv2.TAP_API_FLAG_GSO | tapv2.TAP_API_FLAG_CSUM_OFFLOAD,
		Tag:      interfaceTag(name, ungrouped),
	}, &tapv2.TapCreateV3Reply{}), release, nil
}

// openNamespace opens a namespace, and nothing else: the open of a FIFO waits for a writer, here and in the dataplane.
func openNamespace(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err = unix.Fstatfs(int(f.Fd()), &fs); err == nil && fs.Type != unix.NSFS_MAGIC {
		err = fmt.Errorf("%s is not a namespace", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// queuesOf is a number of queues as the API says it.
func queuesOf(n int) uint16 { return uint16(max(n, 1)) }

func validateQueues(n int) error {
	if n < 0 || n > wire.MaxQueues {
		return fmt.Errorf("%d queues are not within 0, which is one, and %d", n, wire.MaxQueues)
	}
	return nil
}

// tapOf is what the dataplane reports of a tap's Linux end.
func tapOf(d *tapv2.SwInterfaceTapV2Details) wire.Tap {
	return wire.Tap{Namespace: d.HostNamespace, Name: d.HostIfName, MAC: wire.MAC(d.HostMacAddr), MTU: int(d.HostMtuSize)}
}

func validateTap(t wire.Tap) error {
	switch {
	case t.Name == "" || len(t.Name) > maxLinkName:
		return fmt.Errorf("name of the Linux end %q: it has 1 to %d bytes", t.Name, maxLinkName)
	case !t.MAC.IsZero() && !t.MAC.IsUnicast():
		return fmt.Errorf("MAC %s of the Linux end is not that of one interface", t.MAC)
	case t.MTU != 0 && (t.MTU < 68 || t.MTU > 65521):
		return fmt.Errorf("MTU %d of the Linux end is not within 68 and 65521", t.MTU)
	}
	return validateQueues(t.Queues)
}

// probeName is the name of the tap that WhyNoTap creates, and of its Linux end.
const probeName = "weft-probe"

// WhyNoTap creates a tap and deletes it again. It returns why the dataplane cannot create taps, "" if it can, and an error if
// that is not known. VPP answers "System call error #1" whatever is missing; nearly always that is /dev/vhost-net.
func (c *Client) WhyNoTap(ctx context.Context) (string, error) {
	create, release, err := newTap(probeName, wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Name: probeName}})
	if err != nil {
		return "", err
	}
	defer release()
	c.exchange(ctx, create)
	refusal := new(api.VPPApiError)
	switch err := create.fault(); {
	case errors.As(err, refusal) && *refusal == api.SYSCALL_ERROR_1:
		return fmt.Sprintf("%s fails with %q: VPP needs /dev/vhost-net (load the kernel module vhost_net, and give VPP's container the device)",
			create.msg.GetMessageName(), refusal.Error()), nil
	case errors.As(err, refusal):
		return fmt.Sprintf("%s fails with %q", create.msg.GetMessageName(), refusal.Error()), nil
	case err != nil:
		return "", err
	}
	i := create.reply.(*tapv2.TapCreateV3Reply).SwIfIndex
	remove := remove(probeName, wire.Interface{Type: wire.TypeTap}, Index(i))
	c.exchange(ctx, remove)
	return "", remove.fault()
}

// hostLinkPrefix starts the dataplane's names of interfaces that hold a link of ours: one that has no tag yet is
// recognised by its name, however we died.
const hostLinkPrefix = "host-weft"

// Rings are the sizes of the rings that VPP shares with the kernel for an interface of type af_packet. VPP takes their memory
// when it creates the interface: its own defaults of 32 and 1024 frames cost 76 MiB and 65 ms each. weft-vswitch has no rings.
type Rings struct {
	RxFrames int // of 2 KiB in a receive block, of which VPP has 160, an even number; a block bounds the largest packet received
	TxFrames int // of 66 KiB in the transmit ring, an even number; what VPP sends at once beyond it is dropped
}

// The default rings take 7.6 MiB. A receive block holds a packet of an MTU of 9000 bytes. The transmit frames cannot be smaller:
// VPP copies packets into them without looking at their size.
const (
	defaultRxFrames = 6
	defaultTxFrames = 88
)

const (
	rxFrameBytes = 2048
	rxBlocks     = 160       // AF_PACKET_RX_BLOCK_NR of VPP's af_packet.c
	txFrameBytes = 33 * 2048 // AF_PACKET_DEFAULT_TX_FRAME_SIZE
)

func (r Rings) withDefaults() Rings {
	return Rings{cmp.Or(r.RxFrames, defaultRxFrames), cmp.Or(r.TxFrames, defaultTxFrames)}
}

// Bytes is the memory of one interface with one queue in each direction.
func (r Rings) Bytes() int {
	r = r.withDefaults()
	return r.RxFrames*rxFrameBytes*rxBlocks + r.TxFrames*txFrameBytes
}

// MaxSegment is the largest packet that fits into a receive block beside the kernel's headers. The kernel cuts off what is
// larger.
func (r Rings) MaxSegment() int { return r.withDefaults().RxFrames*rxFrameBytes - 256 }

// newAFPacket makes the request for an interface that reads and writes a link of the dataplane's namespace.
func newAFPacket(name string, v wire.Interface, rings Rings) *request {
	return ask(fmt.Sprintf("af_packet_create_v3 %s (%s)", name, v.AFPacket.Link), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: v.MAC.IsZero(), HwAddr: [6]byte(v.MAC), HostIfName: v.AFPacket.Link,
		RxFramesPerBlock: uint32(rings.RxFrames), TxFramesPerBlock: uint32(rings.TxFrames),
		NumRxQueues: queuesOf(v.AFPacket.RxQueues), NumTxQueues: queuesOf(v.AFPacket.TxQueues),
		// Without the first each packet of a pod is segmented and summed one by one; a veth has no queue to bypass, and
		// looking for one takes time.
		Flags: af_packet.AF_PACKET_API_FLAG_CKSUM_GSO | af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS,
	}, &af_packet.AfPacketCreateV3Reply{})
}

// deleteAFPacket takes a link that the dataplane does not hold, which is VPP's system call error, for let go.
func deleteAFPacket(name string, v wire.Interface) *request {
	return ask(fmt.Sprintf("af_packet_delete %s (%s)", name, v.AFPacket.Link), &af_packet.AfPacketDelete{
		HostIfName: v.AFPacket.Link,
	}, &af_packet.AfPacketDeleteReply{}).fineIf(api.SYSCALL_ERROR_1)
}

func validateAFPacket(p wire.AFPacket) error {
	if p.Link == "" || len(p.Link) > maxLinkName {
		return fmt.Errorf("link %q: its name has 1 to %d bytes", p.Link, maxLinkName)
	}
	if _, err := kvscheduler.ParseRef(p.On); err != nil {
		return fmt.Errorf("object of link %s: %w", p.Link, err)
	}
	return errors.Join(validateQueues(p.RxQueues), validateQueues(p.TxQueues))
}

// linkOf is the dependency on the object that makes the link.
func linkOf(p wire.AFPacket) []kvscheduler.Dep {
	on, err := kvscheduler.ParseRef(p.On)
	if err != nil {
		return nil // validateAFPacket has said so
	}
	return []kvscheduler.Dep{{Label: "link", On: on, Mode: kvscheduler.Follow}}
}

// diedUntagged tells whether an interface has no tag and holds a link that is named like ours.
func diedUntagged(d *interfaces.SwInterfaceDetails) bool {
	return d.Tag == "" && strings.HasPrefix(d.InterfaceName, hostLinkPrefix)
}

// Loopbacks of ours have numbers from firstInstance to maxInstance (VPP's limit): one that has no tag yet is
// recognised by its number, however we died.
const (
	firstInstance = 8192
	maxInstance   = 16383
)

// instanceOf is the number that a loopback's name leads to; the next one that is not taken is its own.
func instanceOf(name string, taken map[uint32]bool) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	const span = maxInstance - firstInstance + 1
	start := h.Sum32() % span
	for n := range uint32(span) {
		if instance := firstInstance + (start+n)%span; !taken[instance] {
			return instance
		}
	}
	return firstInstance + start // all taken: the dataplane will say so
}

// loopbackInstance is the number of a loopback; false for another interface.
func loopbackInstance(d *interfaces.SwInterfaceDetails) (uint32, bool) {
	digits, ok := strings.CutPrefix(d.InterfaceName, "loop")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// newLoopback makes the request for a loopback and takes its number.
func newLoopback(name string, v wire.Interface, taken map[uint32]bool) *request {
	instance := instanceOf(name, taken)
	taken[instance] = true
	return ask("create_loopback_instance "+name, &interfaces.CreateLoopbackInstance{
		MacAddress: [6]byte(v.MAC), IsSpecified: true, UserInstance: instance,
	}, &interfaces.CreateLoopbackInstanceReply{})
}

// takenInstances are the numbers of all interfaces of a kind.
func (p *ports) takenInstances(of func(*interfaces.SwInterfaceDetails) (uint32, bool)) map[uint32]bool {
	taken := map[uint32]bool{}
	for _, d := range p.list {
		if n, ok := of(d); ok {
			taken[n] = true
		}
	}
	return taken
}

const (
	// maxVNI is what 24 bits hold.
	maxVNI = 1<<24 - 1
	// decapToBridge leaves the way of what is in an envelope to the dataplane, which is the bridge domain. 0 drops it.
	decapToBridge = ^uint32(0)
)

// newVXLAN makes the request for a tunnel and takes its number, which is one that a loopback of ours could have: one that
// got no tag is recognised by it.
func newVXLAN(name string, v wire.Interface, taken map[uint32]bool) *request {
	instance := instanceOf(name, taken)
	taken[instance] = true
	m := tunnelMessage(v.VXLAN)
	m.IsAdd, m.Instance = true, instance
	return ask("vxlan_add_del_tunnel_v3 "+tunnelWords(name, v), m, &vxlan.VxlanAddDelTunnelV3Reply{})
}

func deleteVXLAN(name string, v wire.Interface) *request {
	return ask("vxlan_add_del_tunnel_v3: delete "+tunnelWords(name, v), tunnelMessage(v.VXLAN), &vxlan.VxlanAddDelTunnelV3Reply{}).
		fineIf(api.NO_SUCH_ENTRY)
}

// tunnelWords name a tunnel in an error.
func tunnelWords(name string, v wire.Interface) string {
	return fmt.Sprintf("%s (%s to %s, VNI %d)", name, v.VXLAN.Source, v.VXLAN.Destination, v.VXLAN.VNI)
}

// tableOf is the dependency on the VRF that routes a tunnel's envelopes.
func tableOf(v wire.VXLAN) []kvscheduler.Dep {
	if v.Table == 0 {
		return nil // the dataplane's own table is always there
	}
	vrf := tableBucket(wire.VRF{ID: v.Table, Family: wire.FamilyOf(v.Source)})
	return []kvscheduler.Dep{{Label: "VRF of the tunnel", Any: &kvscheduler.Select{Kind: wire.KindVRF, Bucket: vrf}}}
}

// tunnelMessage names a tunnel to the dataplane.
func tunnelMessage(v wire.VXLAN) *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		SrcAddress: addressMessage(v.Source), DstAddress: addressMessage(v.Destination), SrcPort: portOf(v), DstPort: portOf(v),
		McastSwIfIndex: noIndex.api(), EncapVrfID: v.Table, DecapNextIndex: decapToBridge, Vni: v.VNI, Instance: ^uint32(0),
	}
}

func addressMessage(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}

func addressIn(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP4 {
		return netip.AddrFrom4(a.Un.GetIP4())
	}
	return netip.AddrFrom16(a.Un.GetIP6())
}

// portOf is the port that a tunnel has.
func portOf(v wire.VXLAN) uint16 {
	if v.Port == 0 {
		return wire.VXLANPort
	}
	return v.Port
}

func dumpVXLANs() *request {
	return askAll(&vxlan.VxlanTunnelV2Dump{SwIfIndex: noIndex.api()}, &vxlan.VxlanTunnelV2Details{})
}

func vxlansIn(r *request) map[Index]wire.VXLAN {
	found := map[Index]wire.VXLAN{}
	for _, d := range listOf[*vxlan.VxlanTunnelV2Details](r) {
		found[Index(d.SwIfIndex)] = wire.VXLAN{
			Source: addressIn(d.SrcAddress), Destination: addressIn(d.DstAddress), VNI: d.Vni, Port: d.SrcPort, Table: d.EncapVrfID,
		}
	}
	return found
}

// equalVXLANs takes the port that is not said for the one that it means.
func equalVXLANs(want, have wire.VXLAN) bool {
	want.Port, have.Port = portOf(want), portOf(have)
	return want == have
}

// vxlanInstance is the number of a tunnel; false for another interface.
func vxlanInstance(d *interfaces.SwInterfaceDetails) (uint32, bool) {
	digits, ok := strings.CutPrefix(d.InterfaceName, "vxlan_tunnel")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// tunnels tells whether the wanted tunnel is there without a tag, but with a number of ours, and notes its number: it is
// what a creation left that was not finished.
func (p *ports) tunnels(it *interfaceItem) bool {
	for _, d := range p.list {
		v, is := p.vxlans[Index(d.SwIfIndex)]
		n, numbered := vxlanInstance(d)
		if is && it.Want.Type == wire.TypeVXLAN && d.Tag == "" && numbered && n >= firstInstance && equalVXLANs(it.Want.VXLAN, v) {
			it.NewMeta = Index(d.SwIfIndex)
			return true
		}
	}
	return false
}

func validateVXLAN(v wire.VXLAN) error {
	for _, a := range []netip.Addr{v.Source, v.Destination} {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("end %s of the tunnel is not the address of one node", a)
		}
	}
	switch {
	case v.Source.Is4() != v.Destination.Is4():
		return fmt.Errorf("ends %s and %s of the tunnel are of two families", v.Source, v.Destination)
	case v.Source == v.Destination:
		return fmt.Errorf("both ends of the tunnel are %s", v.Source)
	case v.VNI == 0 || v.VNI > maxVNI:
		return fmt.Errorf("VNI %d is not within 1 and %d", v.VNI, maxVNI)
	}
	return nil
}

// errOnlyVXLAN says that another type has what only tunnels have.
var errOnlyVXLAN = errors.New("only an interface of type vxlan is a tunnel")

// RCUExpedited is the kernel's setting by which RCU grace periods are expedited (Documentation/RCU in the kernel's sources).
const RCUExpedited = "/sys/kernel/rcu_expedited"

// GracePeriods expedites the kernel's RCU grace periods while the dataplane creates or deletes interfaces of type af_packet. The kernel
// waits for several of them, of some 10 ms each, whenever a packet socket is bound, gets rings or is closed, one interface after
// the other. The price is a short interrupt of each processor that executes kernel code. A kernel that was started with
// rcupdate.rcu_normal=1, as real-time kernels are, ignores the setting.
type GracePeriods struct {
	setting string // file
	marker  string // file that exists while the setting is ours

	mu    sync.Mutex
	users int
	ours  bool
}

// NewGracePeriods checks that the setting can be written, and takes it back if an agent that was killed left it. The marker is a
// file that only root can write.
func NewGracePeriods(setting, marker string) (*GracePeriods, error) {
	f, err := os.OpenFile(setting, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	g := &GracePeriods{setting: setting, marker: marker}
	return g, g.restoreLeft()
}

// RestoreGracePeriods takes the setting back if an agent that was killed left it, for one that does not use it.
func RestoreGracePeriods(setting, marker string) error {
	return (&GracePeriods{setting: setting, marker: marker}).restoreLeft()
}

func (g *GracePeriods) restoreLeft() error {
	if _, err := os.Stat(g.marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return g.restore()
}

// expedite returns the function that ends it. A setting that is on already stays as it is. With an error interfaces take longer.
func (g *GracePeriods) expedite() (end func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users++; g.users == 1 {
		err = g.set()
	}
	return g.end, err
}

func (g *GracePeriods) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 && g.ours {
		g.ours = g.restore() != nil // tried again with the next interface, and by the next agent
	}
}

func (g *GracePeriods) set() error {
	now, err := os.ReadFile(g.setting)
	if err != nil {
		return fmt.Errorf("expedite RCU grace periods: %w", err)
	}
	if strings.TrimSpace(string(now)) != "0" {
		return nil
	}
	if err := os.WriteFile(g.marker, nil, 0o600); err != nil {
		return fmt.Errorf("expedite RCU grace periods: %w", err)
	}
	if err := os.WriteFile(g.setting, []byte("1"), 0); err != nil {
		return errors.Join(fmt.Errorf("expedite RCU grace periods: %w", err), os.Remove(g.marker))
	}
	g.ours = true
	return nil
}

// restore is the inverse of set. It removes the marker last, so that an agent that is killed in between restores the setting again.
func (g *GracePeriods) restore() error {
	err := os.WriteFile(g.setting, []byte("0"), 0)
	if err == nil {
		err = os.Remove(g.marker)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end expedited RCU grace periods: %w", err)
	}
	return nil
}
