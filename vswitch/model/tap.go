package model

import (
	"crypto/rand"
	"errors"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

const (
	maxTapID    = 8192 // VPP's TAP_MAX_INSTANCE
	defaultRing = 256
	maxRing     = 32 << 10
	// maxQueues bounds what one interface costs. VPP takes more.
	maxQueues = 16
	// maxHostName is what the kernel takes as an interface's name.
	maxHostName = 15
	minHostMTU  = 68
	maxHostMTU  = 65521
)

// TapFlags are tap_create_v3's.
type TapFlags uint32

// The flags that are served; others are refused.
const (
	TapGSO      TapFlags = 1
	TapChecksum TapFlags = 2
)

// Tap says what tap to make, in tap_create_v3's words.
type Tap struct {
	ID          uint32     // NoIndex: the lowest free one
	MAC         *frame.MAC // nil: a random one
	Queues      int        // pairs of them; 0: one
	RxRing      uint16     // 0: 256
	TxRing      uint16
	Flags       TapFlags
	Tag         string
	Host        HostEnd
	Unsupported bool // a bridge or a gateway is asked for
}

// HostEnd is the kernel's side of a tap.
type HostEnd struct {
	Name      string       // empty: the kernel chooses
	Namespace string       // an absolute path, pid:<number>, or a name below /var/run/netns; empty: our own
	MAC       frame.MAC    // zero: the kernel chooses
	MTU       uint32       // 0: the kernel's default
	IP4, IP6  netip.Prefix // valid: added to it
}

// TapDetails is what sw_interface_tap_v2_details tells.
type TapDetails struct {
	Tap
	Index   uint32
	DevName string
}

// AddTap makes tap<id> and its host side and returns its index. The host side is up.
func (m *Model) AddTap(t Tap) (uint32, error) {
	defer m.change()()
	if err := m.completeTapLocked(&t); err != nil {
		return NoIndex, err
	}
	config, err := t.config()
	if err != nil {
		return NoIndex, err
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	info, err := m.engine.OpenTap(index, config)
	if err != nil {
		m.log.Warn("tap not made", "interface", t.Host.Name, "netns", t.Host.Namespace, "err", err)
		return NoIndex, tapRetval(err)
	}
	t.Host.Name, t.Host.MAC = info.Name, info.HostMAC
	i := newEthernet(Interface{Index: index, Name: "tap" + strconv.Itoa(int(t.ID)), DevType: "virtio",
		Tag: cutTag(t.Tag), MAC: *t.MAC, LinkUp: true})
	i.tap = &t
	if err := m.addLocked(i); err != nil {
		return NoIndex, errors.Join(err, m.engine.ClosePort(index))
	}
	return index, nil
}

// DeleteTap removes a tap with its host side; another interface is InvalidSwIfIndex.
func (m *Model) DeleteTap(index uint32) error {
	defer m.change()()
	i, ok := m.interfaces[index]
	if !ok || i.tap == nil {
		return InvalidSwIfIndex
	}
	if err := m.engine.ClosePort(index); err != nil && !errors.Is(err, forward.ErrNoPort) {
		m.log.Error("port not closed", "interface", i.Name, "err", err)
	}
	m.removeLocked(i)
	return nil
}

// Taps lists the tap of that index, or all for NoIndex.
func (m *Model) Taps(index uint32) []TapDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []TapDetails
	for _, n := range m.indexesLocked() {
		if i := m.interfaces[n]; i.tap != nil && (index == NoIndex || index == n) {
			list = append(list, TapDetails{Tap: *i.tap, Index: n, DevName: i.Name})
		}
	}
	return list
}

// completeTapLocked fills in defaults and refuses what cannot be had.
func (m *Model) completeTapLocked(t *Tap) error {
	if t.RxRing == 0 {
		t.RxRing = defaultRing
	}
	if t.TxRing == 0 {
		t.TxRing = defaultRing
	}
	switch {
	case t.Unsupported || t.Flags&^(TapGSO|TapChecksum) != 0:
		return Unsupported
	case t.Queues > maxQueues:
		return SyscallError2
	case !ringSize(t.RxRing) || !ringSize(t.TxRing):
		return InitFailed
	}
	if t.MAC == nil {
		mac := randomMAC()
		t.MAC = &mac
	}
	return m.chooseTapIDLocked(t)
}

func (m *Model) chooseTapIDLocked(t *Tap) error {
	taken := map[uint32]bool{}
	for _, i := range m.interfaces {
		if i.tap != nil {
			taken[i.tap.ID] = true
		}
	}
	if t.ID != NoIndex && taken[t.ID] {
		return InvalidInterface
	}
	for n := uint32(0); t.ID == NoIndex; n++ {
		if !taken[n] {
			t.ID = n
		}
	}
	if t.ID > maxTapID {
		return Unspecified
	}
	return nil
}

func ringSize(n uint16) bool { return n <= maxRing && bits.OnesCount16(n) == 1 }

// randomMAC is one of VPP's: 02:fe and four random bytes.
func randomMAC() frame.MAC {
	mac := frame.MAC{0x02, 0xfe}
	_, _ = rand.Read(mac[2:]) // never fails
	return mac
}

// config is the order to the engine.
func (t *Tap) config() (port.TapConfig, error) {
	h := t.Host
	netns, err := namespacePath(h.Namespace)
	switch {
	case err != nil:
		return port.TapConfig{}, err
	case len(h.Name) > maxHostName || strings.ContainsAny(h.Name, "/ \t\n%"):
		return port.TapConfig{}, SyscallError3
	case h.MTU != 0 && (h.MTU < minHostMTU || h.MTU > maxHostMTU), h.MAC.IsMulticast():
		return port.TapConfig{}, NetlinkError
	}
	c := port.TapConfig{Namespace: netns, Name: h.Name, HostMAC: h.MAC, HostMTU: int(h.MTU), Up: true,
		Queues: t.Queues, NoOffload: t.Flags&TapGSO == 0}
	for _, p := range []netip.Prefix{h.IP4, h.IP6} {
		if p.IsValid() {
			c.HostAddresses = append(c.HostAddresses, p)
		}
	}
	return c, nil
}

// namespacePath reads a namespace's name as VPP does.
func namespacePath(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, "/") {
		return name, nil
	}
	if pid, ok := strings.CutPrefix(name, "pid:"); ok {
		if n, err := strconv.ParseUint(pid, 10, 31); err == nil && n > 0 {
			return "/proc/" + pid + "/ns/net", nil
		}
		return "", SyscallError2
	}
	if strings.Contains(name, "/") || name == "." || name == ".." {
		return "", SyscallError2
	}
	return "/var/run/netns/" + name, nil
}

// tapRetval is what VPP answers when the kernel refuses.
func tapRetval(err error) Retval {
	if errors.Is(err, port.ErrNamespaceGone) {
		return SyscallError2
	}
	return SyscallError3
}

// AFPacketFlags are af_packet_create_v3's. As in VPP others mean nothing.
type AFPacketFlags uint32

// The flags. That for TPACKET_V2 changes nothing here: there is no ring.
const (
	AFPacketQdiscBypass AFPacketFlags = 1
	AFPacketOffload     AFPacketFlags = 2
)

// AFPacket says which link of the machine to attach to, in af_packet_create_v3's words.
type AFPacket struct {
	HostName string     // of a link in the dataplane's own namespace
	MAC      *frame.MAC // of the interface, not of the link; nil: a random one
	Mode     uint32     // VPP's: 1 Ethernet, 2 IP
	Flags    AFPacketFlags
	Queues   int // the larger of both directions, which the link has for others: here one socket serves all of them
}

// AFPacketDetails is what af_packet_details tells.
type AFPacketDetails struct {
	Index    uint32
	HostName string
}

const (
	modeEthernet = 1
	modeIP       = 2
)

// AddAFPacket attaches to a link, sets it up, makes host-<its name> and returns that interface's index. For a link that is
// attached to already the index is its interface's, beside the error IfAlreadyExists.
func (m *Model) AddAFPacket(p AFPacket) (uint32, error) {
	defer m.change()()
	if i := m.linkedLocked(p.HostName); i != nil {
		return i.Index, IfAlreadyExists
	}
	switch {
	case p.Mode == modeIP || p.Queues > maxQueues:
		return NoIndex, Unsupported
	case p.Mode != modeEthernet:
		return NoIndex, InvalidValue
	case p.HostName == "" || len(p.HostName) > maxHostName:
		return NoIndex, InvalidInterface
	}
	if p.MAC == nil {
		mac := randomMAC()
		p.MAC = &mac
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	config := port.AFPacketConfig{Name: p.HostName, Offload: p.Flags&AFPacketOffload != 0,
		QdiscBypass: p.Flags&AFPacketQdiscBypass != 0, SetUp: true}
	if _, err := m.engine.OpenAFPacket(index, config); err != nil {
		m.log.Warn("link not attached", "interface", p.HostName, "err", err)
		return NoIndex, afPacketRetval(err)
	}
	i := newEthernet(Interface{Index: index, Name: "host-" + p.HostName, DevType: "af-packet", MAC: *p.MAC, LinkUp: true})
	i.afPacket = &p
	if err := m.addLocked(i); err != nil {
		return NoIndex, errors.Join(err, m.engine.ClosePort(index))
	}
	return index, nil
}

// DeleteAFPacket lets a link go, which stays; one that is not attached is SyscallError1, as in VPP.
func (m *Model) DeleteAFPacket(hostName string) error {
	defer m.change()()
	i := m.linkedLocked(hostName)
	if i == nil {
		return SyscallError1
	}
	if err := m.engine.ClosePort(i.Index); err != nil && !errors.Is(err, forward.ErrNoPort) {
		m.log.Error("port not closed", "interface", i.Name, "err", err)
	}
	m.removeLocked(i)
	return nil
}

// AFPackets lists the links that are attached, by index.
func (m *Model) AFPackets() []AFPacketDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []AFPacketDetails
	for _, n := range m.indexesLocked() {
		if p := m.interfaces[n].afPacket; p != nil {
			list = append(list, AFPacketDetails{Index: n, HostName: p.HostName})
		}
	}
	return list
}

func (m *Model) linkedLocked(hostName string) *iface {
	for _, i := range m.interfaces {
		if i.afPacket != nil && i.afPacket.HostName == hostName {
			return i
		}
	}
	return nil
}

// afPacketRetval is what VPP answers when the kernel refuses.
func afPacketRetval(err error) Retval {
	if errors.Is(err, port.ErrNoLink) {
		return InvalidInterface
	}
	return SyscallError1
}
