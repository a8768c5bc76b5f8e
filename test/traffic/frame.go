package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Lengths of a frame's parts. An Ethernet frame has at least 64 bytes, including the check sequence of four bytes,
// which the kernel does not count.
const (
	ethernetLen = 14
	ipv4Len     = 20
	frameLen    = 64 - 4
)

// frame builds a UDP frame to an address with port, as the sender's stack would send it on its link.
func (p Path) frame(ctx context.Context, to string) (frame []byte, err error) {
	err = Inside(p.From, func() error {
		// The stack chooses the source address and resolves the next hop.
		c, err := Dialer(p.FromLink).DialContext(ctx, "udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		link, err := netlink.LinkByName(p.FromLink)
		if err != nil {
			return fmt.Errorf("find link %s: %w", p.FromLink, err)
		}
		neighbour, err := resolve(ctx, c, link, p.Address)
		if err != nil {
			return err
		}
		frame = make([]byte, frameLen)
		copy(frame, neighbour)
		copy(frame[6:], link.Attrs().HardwareAddr)
		binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
		putUDP(frame[ethernetLen:], c.LocalAddr().(*net.UDPAddr).AddrPort(), c.RemoteAddr().(*net.UDPAddr).AddrPort())
		return nil
	})
	return frame, err
}

// resolve waits until the kernel knows the MAC of the next hop.
func resolve(ctx context.Context, c net.Conn, link netlink.Link, to netip.Addr) (net.HardwareAddr, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := c.Write([]byte("who is there?")); err != nil {
			return nil, err
		}
		mac, err := nextHop(link, to)
		if mac != nil || err != nil {
			return mac, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("no MAC of %s on %s", to, link.Attrs().Name)
		}
	}
}

// nextHop returns the MAC of the neighbour on the route to an address; nil if it is not resolved yet.
func nextHop(link netlink.Link, to netip.Addr) (net.HardwareAddr, error) {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Oif: link.Attrs().Name})
	if err != nil || len(routes) == 0 {
		return nil, errors.Join(fmt.Errorf("find the route to %s", to), err)
	}
	hop := to
	if gateway, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		hop = gateway.Unmap()
	}
	list, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	for _, n := range list {
		if n.IP.Equal(hop.AsSlice()) && len(n.HardwareAddr) == 6 {
			return n.HardwareAddr, nil
		}
	}
	return nil, err
}

// putUDP writes a packet that fills b. Its UDP has no checksum, as IPv4 allows.
func putUDP(b []byte, from, to netip.AddrPort) {
	b[0] = 0x45
	b[8] = 64
	b[9] = unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], from.Addr().Unmap().AsSlice())
	copy(b[16:], to.Addr().Unmap().AsSlice())
	var sum uint32
	for i := 0; i < ipv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum&0xffff+sum>>16))
	udp := b[ipv4Len:]
	binary.BigEndian.PutUint16(udp, from.Port())
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
}
