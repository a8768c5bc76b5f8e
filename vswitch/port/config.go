package port

import (
	"errors"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// ErrNameInUse says that the namespace already has an interface of the wanted name.
var ErrNameInUse = errors.New("an interface of that name exists")

// ErrNamespaceGone says that the namespace's path cannot be opened, or is no network namespace.
var ErrNamespaceGone = errors.New("network namespace cannot be entered")

// TapConfig says what tap to make.
type TapConfig struct {
	Namespace     string         // path of a network namespace file; empty: the process's own
	Name          string         // the kernel's name of the host side, at most 15 bytes; empty: the kernel chooses tapN
	HostMAC       frame.MAC      // of the host side; zero: the kernel chooses
	HostMTU       int            // of the host side; 0: 1500
	Up            bool           // set the host side admin up
	Queues        int            // pairs of them; 0: one
	NoOffload     bool           // refuse GSO and partial checksums from the kernel
	HostAddresses []netip.Prefix // added to the host side
}

// TapInfo describes an open tap.
type TapInfo struct {
	Name    string    // the kernel's name of the host side
	Ifindex int       // of the host side, in its namespace
	HostMAC frame.MAC // of the host side
	HostMTU int
	Offload Offload // what the kernel agreed to hand over unfinished
}

// Offload says which work the kernel leaves to the receiver of its frames.
type Offload struct {
	Checksum bool // partial L4 checksums (VIRTIO_NET_HDR_F_NEEDS_CSUM)
	TCP      bool // TCP segments of up to 64 KiB, both families
	UDP      bool // UDP segmentation (USO); needs Linux 6.2
}
