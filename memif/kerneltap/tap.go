// Package kerneltap joins a memif of a container to a tap of the kernel, so that programs with sockets use the network
// of the memif.
package kerneltap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
)

// Tap is a tap with the name, MAC, MTU, addresses and routes of a memif. The kernel deletes it with the last
// descriptor.
type Tap struct{ file *os.File }

// New makes the tap of an Ethernet memif in the network namespace of the calling thread. It needs CAP_NET_ADMIN and
// /dev/net/tun.
func New(d memif.Description) (*Tap, error) {
	if d.Mode != memif.Ethernet {
		return nil, fmt.Errorf("memif %s: mode %v: a tap needs Ethernet frames", d.Name, d.Mode)
	}
	file, err := create(d.Name)
	if err != nil {
		return nil, fmt.Errorf("make tap %s: %w", d.Name, err)
	}
	if err := configure(d); err != nil {
		return nil, errors.Join(fmt.Errorf("configure tap %s: %w", d.Name, err), file.Close())
	}
	return &Tap{file}, nil
}

// Close deletes the tap, which ends Forward.
func (t *Tap) Close() error { return t.file.Close() }

// Forward forwards frames between the tap and the memif until ctx ends and the tap is closed. Frames are lost while the
// memif is not connected.
func (t *Tap) Forward(ctx context.Context, client *memif.Client) {
	var running sync.WaitGroup
	running.Go(func() {
		forward(t.file.Read, func(b []byte) (int, error) { return len(b), client.WritePacket(ctx, b) })
	})
	running.Go(func() {
		forward(func(b []byte) (int, error) { return client.ReadPacket(ctx, b) }, t.file.Write)
	})
	running.Wait()
}

// forward returns at the first error of read.
func forward(read, write func([]byte) (int, error)) {
	packet := make([]byte, memif.DefaultMaxPacket)
	for {
		n, err := read(packet)
		if err != nil {
			return
		}
		_, _ = write(packet[:n]) // a failed write is a lost packet
	}
}

// create returns a descriptor with a Close that ends a Read: only a descriptor that became non-blocking after TUNSETIFF
// can be polled.
func create(name string) (*os.File, error) {
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1,
		Flags: netlink.TUNTAP_NO_PI | unix.IFF_TAP,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, err
	}
	blocking := tap.Fds[0]
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err := errors.Join(err, blocking.Close()); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

func configure(d memif.Description) error {
	for _, name := range []string{"accept_ra", "accept_dad"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+d.Name+"/"+name, []byte("0"), 0); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName(d.Name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(link, d.MAC); err != nil {
		return fmt.Errorf("MAC %s: %w", d.MAC, err)
	}
	if err := netlink.LinkSetMTU(link, d.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", d.MTU, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, a := range d.Addresses {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	return addRoutes(d, link.Attrs().Index)
}

// addRoutes adds the neighbour entries of the gateways, and the routes. The main interface has the routes of the
// default network.
func addRoutes(d memif.Description, link int) error {
	if d.GatewayMAC != nil {
		for _, g := range d.Gateways {
			n := &netlink.Neigh{
				LinkIndex:    link,
				IP:           g.AsSlice(),
				HardwareAddr: d.GatewayMAC,
				State:        netlink.NUD_PERMANENT,
			}
			if err := netlink.NeighSet(n); err != nil {
				return fmt.Errorf("gateway %s: %w", g, err)
			}
		}
	}
	if d.Network == "default" {
		return nil
	}
	for _, r := range d.Routes {
		route := &netlink.Route{LinkIndex: link, Dst: ipNet(r.Destination), Scope: netlink.SCOPE_LINK}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
			route.Scope = netlink.SCOPE_UNIVERSE
			route.Flags = int(netlink.FLAG_ONLINK)
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route %s: %w", r.Destination, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
