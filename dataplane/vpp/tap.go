package vpp

import (
	"errors"
	"fmt"
	"os"

	"go.fd.io/govpp/binapi/tapv2"
	"golang.org/x/sys/unix"

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
