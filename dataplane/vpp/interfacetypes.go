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
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const maxNamespace = 63

const maxLinkName = 15

// newTap requests a tap. It opens a namespace with a path that is too long for the API and names it by the file
// descriptor, which the dataplane can open if it sees our processes. Call release after the exchange.
func newTap(name string, v wire.Interface) (r *request, release func(), err error) {
	namespace := v.Tap.Namespace
	release = func() {}
	if len(namespace) > maxNamespace {
		f, err := openNamespace(namespace)
		if err != nil {
			return nil, nil, permanent(fmt.Errorf("create tap %s: network namespace: %w", v.Tap.Name, err))
		}
		namespace = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
		release = func() { _ = f.Close() }
	}
	ungrouped := v
	ungrouped.GSO = false // until finish enables it
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
		// Without these the kernel segments and checksums each packet of a pod.
		TapFlags: tapv2.TAP_API_FLAG_GSO | tapv2.TAP_API_FLAG_CSUM_OFFLOAD,
		Tag:      interfaceTag(name, ungrouped),
	}, &tapv2.TapCreateV3Reply{}), release, nil
}

// openNamespace opens a namespace and refuses other files. The open of a FIFO would wait for a writer.
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

// queuesOf converts a number of queues to the API; 0 is one queue.
func queuesOf(n int) uint16 { return uint16(max(n, 1)) }

func validateQueues(n int) error {
	if n < 0 || n > wire.MaxQueues {
		return fmt.Errorf("%d queues are not within 0, which is one, and %d", n, wire.MaxQueues)
	}
	return nil
}

func tapOf(d *tapv2.SwInterfaceTapV2Details) wire.Tap {
	return wire.Tap{
		Namespace: d.HostNamespace,
		Name:      d.HostIfName,
		MAC:       netaddr.MAC(d.HostMacAddr),
		MTU:       int(d.HostMtuSize),
	}
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

// WhyNoTap creates a tap and deletes it again. It returns why the dataplane cannot create taps, "" if it can, and an
// error if that is not known. VPP answers "System call error #1" whatever is missing; nearly always that is
// /dev/vhost-net.
func (c *connection) WhyNoTap(ctx context.Context) (string, error) {
	create, release, err := newTap(probeName, wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Name: probeName}})
	if err != nil {
		return "", err
	}
	defer release()
	c.exchange(ctx, create)
	refusal := new(api.VPPApiError)
	switch err := create.fault(); {
	case errors.As(err, refusal) && *refusal == api.SYSCALL_ERROR_1:
		return fmt.Sprintf(
			"%s fails with %q: VPP needs /dev/vhost-net (load the kernel module vhost_net, and give VPP's container the device)",
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

// hostLinkPrefix starts the dataplane's names of interfaces on our links. It identifies those that have no tag yet.
const hostLinkPrefix = "host-weft"

// Rings are the sizes of the rings that VPP shares with the kernel for an interface of type af_packet. VPP takes their
// memory when it creates the interface: its own defaults of 32 and 1024 frames cost 76 MiB and 65 ms each. weft-vswitch
// has no rings.
type Rings struct {
	RxFrames int // of 2 KiB in each of VPP's 160 receive blocks; even; a block bounds the largest received packet
	TxFrames int // of 66 KiB in the transmit ring; even; VPP drops larger bursts
}

// The default rings take 7.6 MiB. A receive block holds a packet of an MTU of 9600 bytes. The transmit frames cannot be
// smaller: VPP does not check the size of packets that it copies into them.
const (
	defaultRxFrames = 6
	defaultTxFrames = 88
)

const rxFrameBytes = 2048

func (r Rings) withDefaults() Rings {
	return Rings{cmp.Or(r.RxFrames, defaultRxFrames), cmp.Or(r.TxFrames, defaultTxFrames)}
}

// MaxSegment is the largest packet that fits into a receive block with the kernel's headers. The kernel truncates
// larger packets.
func (r Rings) MaxSegment() int { return r.withDefaults().RxFrames*rxFrameBytes - 256 }

func newAFPacket(name string, v wire.Interface, rings Rings) *request {
	return ask(fmt.Sprintf("af_packet_create_v3 %s (%s)", name, v.AFPacket.Link), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: v.MAC.IsZero(), HwAddr: [6]byte(v.MAC), HostIfName: v.AFPacket.Link,
		RxFramesPerBlock: uint32(rings.RxFrames), TxFramesPerBlock: uint32(rings.TxFrames),
		NumRxQueues: queuesOf(v.AFPacket.RxQueues), NumTxQueues: queuesOf(v.AFPacket.TxQueues),
		// Without the first flag the kernel segments and checksums each packet of a pod. A veth has no queueing
		// discipline, and the second flag avoids the lookup.
		Flags: af_packet.AF_PACKET_API_FLAG_CKSUM_GSO | af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS,
	}, &af_packet.AfPacketCreateV3Reply{})
}

// deleteAFPacket ignores VPP's system call error, which means that the dataplane does not have the link.
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

func linkOf(p wire.AFPacket) []kvscheduler.Dep {
	on, err := kvscheduler.ParseRef(p.On)
	if err != nil {
		return nil // refused by validateAFPacket
	}
	return []kvscheduler.Dep{{Label: "link", On: on, Mode: kvscheduler.Follow}}
}

// Our loopbacks and tunnels have numbers from firstInstance to maxInstance (VPP's limit), which identify those that
// have no tag yet.
const (
	firstInstance = 8192
	maxInstance   = 16383

	loopbackPrefix = "loop"
	tunnelPrefix   = "vxlan_tunnel"
)

// instanceOf derives a free number from the name of a loopback or tunnel.
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
	return firstInstance + start // all taken: the dataplane refuses it
}

// instanceIn returns the number in the dataplane's name of a loopback or tunnel; false for another interface.
func instanceIn(d *interfaces.SwInterfaceDetails, prefix string) (uint32, bool) {
	digits, ok := strings.CutPrefix(d.InterfaceName, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// newLoopback requests a loopback and adds its number to the taken ones.
func newLoopback(name string, v wire.Interface, taken map[uint32]bool) *request {
	instance := instanceOf(name, taken)
	taken[instance] = true
	return ask("create_loopback_instance "+name, &interfaces.CreateLoopbackInstance{
		MacAddress: [6]byte(v.MAC), IsSpecified: true, UserInstance: instance,
	}, &interfaces.CreateLoopbackInstanceReply{})
}

const (
	maxVNI = 1<<24 - 1
	// decapToBridge passes decapsulated packets to the bridge domain. 0 would drop them.
	decapToBridge = ^uint32(0)
)

// newVXLAN requests a tunnel and adds its number to the taken ones.
func newVXLAN(name string, v wire.Interface, taken map[uint32]bool) *request {
	instance := instanceOf(name, taken)
	taken[instance] = true
	m := tunnelMessage(v.VXLAN)
	m.IsAdd = true
	m.Instance = instance
	return ask("vxlan_add_del_tunnel_v3 "+tunnelWords(name, v), m, &vxlan.VxlanAddDelTunnelV3Reply{})
}

func deleteVXLAN(name string, v wire.Interface) *request {
	return ask("vxlan_add_del_tunnel_v3: delete "+tunnelWords(name, v), tunnelMessage(v.VXLAN),
		&vxlan.VxlanAddDelTunnelV3Reply{}).
		fineIf(api.NO_SUCH_ENTRY)
}

func tunnelWords(name string, v wire.Interface) string {
	return fmt.Sprintf("%s (%s to %s, VNI %d)", name, v.VXLAN.Source, v.VXLAN.Destination, v.VXLAN.VNI)
}

// tableOf returns the dependency on the VRF that routes the outer packets of a tunnel.
func tableOf(v wire.VXLAN) []kvscheduler.Dep {
	if v.Table == 0 {
		return nil // table 0 always exists
	}
	vrf := tableBucket(wire.VRF{ID: v.Table, Family: netaddr.FamilyOf(v.Source)})
	return []kvscheduler.Dep{{Label: "VRF of the tunnel", Any: &kvscheduler.Select{Kind: wire.KindVRF, Bucket: vrf}}}
}

// tunnelMessage returns a message that identifies a tunnel.
func tunnelMessage(v wire.VXLAN) *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		SrcAddress: apiAddress(v.Source), DstAddress: apiAddress(v.Destination), SrcPort: portOf(v), DstPort: portOf(v),
		McastSwIfIndex: noIndex.api(),
		EncapVrfID:     v.Table,
		DecapNextIndex: decapToBridge,
		Vni:            v.VNI,
		Instance:       ^uint32(0),
	}
}

func portOf(v wire.VXLAN) uint16 { return cmp.Or(v.Port, wire.VXLANPort) }

func dumpVXLANs() *request {
	return askAll(&vxlan.VxlanTunnelV2Dump{SwIfIndex: noIndex.api()}, &vxlan.VxlanTunnelV2Details{})
}

func vxlansIn(r *request) map[Index]wire.VXLAN {
	return mapOf(r, func(d *vxlan.VxlanTunnelV2Details) (Index, wire.VXLAN) {
		return Index(d.SwIfIndex), wire.VXLAN{
			Source:      address(d.SrcAddress),
			Destination: address(d.DstAddress),
			VNI:         d.Vni,
			Port:        d.SrcPort,
			Table:       d.EncapVrfID,
		}
	})
}

// equalVXLANs treats port 0 as the default port.
func equalVXLANs(want, have wire.VXLAN) bool {
	want.Port = portOf(want)
	have.Port = portOf(have)
	return want == have
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

// RCUExpedited is the kernel's setting that expedites RCU grace periods (Documentation/RCU in the kernel's sources).
const RCUExpedited = "/sys/kernel/rcu_expedited"

// GracePeriods expedites the kernel's RCU grace periods while the dataplane creates or deletes interfaces of type
// af_packet. The kernel waits for several of them, of some 10 ms each, whenever a packet socket is bound, gets rings or
// is closed, one interface after the other. The price is a short interrupt of each processor that executes kernel code.
// A kernel that was started with rcupdate.rcu_normal=1, as real-time kernels are, ignores the setting.
type GracePeriods struct {
	setting string // file
	marker  string // file that exists while the agent has changed the setting

	mu    sync.Mutex
	users int
	ours  bool
}

// NewGracePeriods checks that the setting can be written, and restores it after an agent that was killed. The marker is
// a file that only root can write.
func NewGracePeriods(setting, marker string) (*GracePeriods, error) {
	f, err := os.OpenFile(setting, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &GracePeriods{setting: setting, marker: marker}, RestoreGracePeriods(setting, marker)
}

// RestoreGracePeriods restores the setting after an agent that was killed.
func RestoreGracePeriods(setting, marker string) error {
	if _, err := os.Stat(marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return (&GracePeriods{setting: setting, marker: marker}).restore()
}

// expedite returns the function that restores the setting. It leaves a setting that is on already. On error interfaces
// take longer.
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

// restore is the inverse of set. It removes the marker last, so that an agent that is killed in between restores the
// setting again.
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
