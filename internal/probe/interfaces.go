package probe

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/weftnet/weft/memif"
)

// Interfaces lists the interfaces of this pod with addresses: those of the kernel, and memifs.
func Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	found := []Interface{}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", i.Name, err)
		}
		one := Interface{Name: i.Name, MTU: i.MTU, Addresses: []netip.Addr{}}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				one.Addresses = append(one.Addresses, p.Addr())
			}
		}
		found = append(found, one)
	}
	memifs, err := memifs()
	return append(found, memifs...), err
}

// memifs lists the memifs of this container.
func memifs() ([]Interface, error) {
	if os.Getenv(memif.SocketVariable) == "" {
		return nil, nil
	}
	e, err := memif.ReadEnvironment()
	if err != nil {
		return nil, err
	}
	var found []Interface
	for _, d := range e.Interfaces {
		one := Interface{Name: d.Name, MTU: d.MTU, Memif: true, Addresses: []netip.Addr{}}
		for _, p := range d.Addresses {
			one.Addresses = append(one.Addresses, p.Addr())
		}
		found = append(found, one)
	}
	return found, nil
}
