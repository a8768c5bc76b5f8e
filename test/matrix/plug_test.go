package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
)

// plug is the program of a memif's pod: a tap in the pod, configured from the container's interfaces.json, and forwarding of packets
// between tap and memif. So tests can check a memif's pod like others.
type plug struct {
	tap     *os.File
	client  *memif.Client
	stop    context.CancelFunc
	running sync.WaitGroup
}

// listed is an interface of interfaces.json.
type listed memif.Description

// plugIn starts forwarding as soon as the memif is connected.
func (w *attachedPod) plugIn(t *testing.T) {
	t.Helper()
	directory := w.container.Mounts[0].GetHostPath()
	text, err := os.ReadFile(filepath.Join(directory, memif.DescriptionFile))
	must.Succeed(t, err)
	all, err := memif.ParseDescriptions(text)
	must.Succeed(t, err)
	if len(all) != 1 || all[0].Name != "x0" {
		t.Fatalf("interfaces.json is %s", text)
	}
	l, p := listed(all[0]), &plug{}
	must.Succeed(t, netns.Do(w.Netns, func() (err error) { p.tap, err = l.makeTap(); return err }))
	ctx, cancel := context.WithTimeout(t.Context(), settling)
	defer cancel()
	p.client, err = memif.Dial(ctx, memif.ClientConfig{
		Socket: filepath.Join(directory, "memif.sock"), ID: l.ID, Secret: memif.Secret(w.container.Envs[memif.SecretVariable]), Name: l.Name,
	}, memif.ClientEvents{})
	must.Succeed(t, err)
	ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(func() { carry(p.tap.Read, func(b []byte) (int, error) { return len(b), p.client.WritePacket(ctx, b) }) })
	p.running.Go(func() {
		carry(func(b []byte) (int, error) { return p.client.ReadPacket(ctx, b) }, p.tap.Write)
	})
	w.plug = p
}

// unplug deletes the tap and waits until forwarding has ended.
func (w *attachedPod) unplug() error {
	if w.plug == nil {
		return nil
	}
	p := w.plug
	w.plug = nil
	p.stop()
	err := p.tap.Close()
	p.running.Wait()
	return errors.Join(err, p.client.Close())
}

// carry forwards packets until one end is closed.
func carry(read, write func([]byte) (int, error)) {
	packet := make([]byte, memif.DefaultMaxPacket)
	for {
		n, err := read(packet)
		if err != nil {
			return
		}
		_, _ = write(packet[:n]) // a failed write is a lost packet
	}
}

// makeTap makes the tap in the calling thread's namespace.
func (l listed) makeTap() (*os.File, error) {
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: l.Name}, Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1,
		Flags: netlink.TUNTAP_NO_PI | unix.IFF_TAP,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, fmt.Errorf("make tap: %w", err)
	}
	fd := tap.Fds[0]
	nonblocking, err := unix.FcntlInt(fd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(nonblocking, true)
	}
	if err := errors.Join(err, fd.Close()); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(nonblocking), "/dev/net/tun"), l.configure()
}

// configure configures the tap from the file.
func (l listed) configure() error {
	for _, name := range []string{"accept_ra", "accept_dad"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+l.Name+"/"+name, []byte("0"), 0); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName(l.Name)
	if err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return netlink.LinkSetHardwareAddr(link, l.MAC) },
		func() error { return netlink.LinkSetMTU(link, l.MTU) },
		func() error { return netlink.LinkSetUp(link) },
		func() error { return l.configureIP(link) },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("dress %s: %w", l.Name, err)
		}
	}
	return nil
}

// configureIP adds addresses, the gateways' MAC and routes.
func (l listed) configureIP(link netlink.Link) error {
	for _, a := range l.Addresses {
		address := &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if l.GatewayMAC != nil {
		for _, g := range l.Gateways {
			n := &netlink.Neigh{LinkIndex: link.Attrs().Index, IP: g.AsSlice(), HardwareAddr: l.GatewayMAC, State: netlink.NUD_PERMANENT}
			if err := netlink.NeighSet(n); err != nil {
				return fmt.Errorf("gateway %s: %w", g, err)
			}
		}
	}
	if l.Network == "default" {
		return nil // the main interface has the route already
	}
	for _, r := range l.Routes {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Destination), Scope: netlink.SCOPE_LINK}
		if r.Gateway.IsValid() {
			route.Gw, route.Scope, route.Flags = r.Gateway.AsSlice(), netlink.SCOPE_UNIVERSE, int(netlink.FLAG_ONLINK)
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route %+v: %w", r, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
