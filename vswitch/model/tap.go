package model

import (
	"cmp"
	"crypto/rand"
	"errors"
	"log/slog"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

const (
	maxTapID    = 8192 // VPP's TAP_MAX_INSTANCE
	defaultRing = 256
	maxRing     = 32 << 10
	// maxQueues bounds the resources of one interface. VPP accepts more.
	maxQueues = 16
	// maxHostName is the kernel's maximum length of an interface name.
	maxHostName = 15
	minHostMTU  = 68
	maxHostMTU  = 65521
)

// TapFlags are the flags of tap_create_v3.
type TapFlags uint32

// The supported flags.
const (
	TapGSO      TapFlags = 1
	TapChecksum TapFlags = 2
)

// Tap holds the fields of tap_create_v3.
type Tap struct {
	ID          uint32     // NoIndex: the lowest free one
	MAC         *frame.MAC // nil: a random one
	Queues      int        // number of queue pairs; 0: one
	RxRing      uint16     // 0: 256
	TxRing      uint16
	Flags       TapFlags
	Tag         string
	Host        HostEnd
	Unsupported bool // a bridge or a gateway is requested
}

// HostEnd is the kernel's side of a tap.
type HostEnd struct {
	Name string // empty: the kernel chooses
	// an absolute path, pid:<number>, or a name below /var/run/netns; empty: the dataplane's
	Namespace string
	MAC       frame.MAC    // zero: the kernel chooses
	MTU       uint32       // 0: the kernel's default
	IP4, IP6  netip.Prefix // added if valid
}

// TapDetails holds the fields of sw_interface_tap_v2_details.
type TapDetails struct {
	Tap
	Index   uint32
	DevName string
}

// Taps are the taps of the kernel.
type Taps struct {
	*barrier
	log        *slog.Logger
	interfaces *Interfaces
}

// Add creates tap<id> and its host side, which is up, and returns its index.
func (ts *Taps) Add(t Tap) (uint32, error) {
	defer ts.change()()
	if err := ts.completeLocked(&t); err != nil {
		return NoIndex, err
	}
	config, err := t.config()
	if err != nil {
		return NoIndex, err
	}
	index, err := ts.interfaces.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	info, err := ts.engine.OpenTap(index, config)
	if err != nil {
		ts.log.Warn("tap not created", "interface", t.Host.Name, "netns", t.Host.Namespace, "err", err)
		return NoIndex, tapRetval(err)
	}
	t.Host.Name = info.Name
	t.Host.MAC = info.HostMAC
	i := newEthernet(Interface{Index: index, Name: "tap" + strconv.Itoa(int(t.ID)), DevType: "virtio",
		Tag: cutTag(t.Tag), MAC: *t.MAC, LinkUp: true})
	i.kind = &t
	return ts.interfaces.addLocked(i)
}

// Delete deletes a tap and its host side. For other interfaces it returns InvalidSwIfIndex.
func (ts *Taps) Delete(index uint32) error { return deleteKind[Tap](ts.interfaces, index) }

// List lists the tap of the given index, or all for NoIndex.
func (ts *Taps) List(index uint32) []TapDetails {
	return listKind(ts.interfaces, index, func(i *iface, t *Tap) TapDetails {
		return TapDetails{Tap: *t, Index: i.Index, DevName: i.Name}
	})
}

// completeLocked sets defaults and validates the tap.
func (ts *Taps) completeLocked(t *Tap) error {
	t.RxRing = cmp.Or(t.RxRing, defaultRing)
	t.TxRing = cmp.Or(t.TxRing, defaultRing)
	switch {
	case t.Unsupported || t.Flags&^(TapGSO|TapChecksum) != 0:
		return Unsupported
	case t.Queues > maxQueues:
		return SyscallError2
	case !ringSize(t.RxRing) || !ringSize(t.TxRing):
		return InitFailed
	}
	t.MAC = orRandomMAC(t.MAC)
	id, free := chooseInstance(ts.interfaces, t.ID, func(t *Tap) uint32 { return t.ID })
	switch {
	case !free:
		return InvalidInterface
	case id > maxTapID:
		return Unspecified
	}
	t.ID = id
	return nil
}

func ringSize(n uint16) bool { return n <= maxRing && bits.OnesCount16(n) == 1 }

// orRandomMAC returns mac, or for nil a random MAC with VPP's prefix 02:fe.
func orRandomMAC(mac *frame.MAC) *frame.MAC {
	if mac == nil {
		mac = &frame.MAC{0x02, 0xfe}
		_, _ = rand.Read(mac[2:]) // never fails
	}
	return mac
}

// config returns the configuration for the engine.
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

// namespacePath returns the path of a network namespace, which VPP names in several ways.
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

// tapRetval returns VPP's retval for an error of the kernel.
func tapRetval(err error) Retval {
	if errors.Is(err, port.ErrNamespaceGone) {
		return SyscallError2
	}
	return SyscallError3
}
