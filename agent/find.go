package agent

import (
	"errors"
	"fmt"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// find collects what the machine knows of those interfaces that nobody knows yet; unknown are those where it knows too
// little. Those of sandboxes that are gone are neither.
func (a *Agent) find(ports []vpp.Port) (found, unknown []ipnet.Found) {
	mounted, err := linux.FindMounted()
	if err != nil {
		a.log.Error("network namespaces not looked for: no veth is made anew", "err", err)
	}
	known := a.knownObjects()
	for _, p := range ports {
		if ipnet.IsNodes(p.Name) || known[wire.InterfaceKey(p.Name)] || ipnet.IsExternal(p.Name) {
			continue // no pod's: the node's own links are desired in any case, those to the outside are set again
		}
		f, err := a.findPort(p, mounted)
		switch {
		case err == nil:
			found = append(found, f)
		case errors.Is(err, linux.ErrGone) && (f.Type == pod.TypeMemif || isMade(p)):
			a.log.Info("interface of a sandbox that is gone is left to be pruned", "interface", p.Name, "link", f.Name, "netns", f.Netns.Path)
		default:
			unknown = append(unknown, f)
			a.leaveAlone(f, err)
		}
	}
	return found, unknown
}

// made is what an interface is made with but for its queues, as the dataplane reports it and, of one on a veth, as it follows
// from its name.
func made(p vpp.Port) wire.Interface {
	v := p.Interface
	if v.Type == wire.TypeAFPacket {
		v.AFPacket.On = wire.VethKey(p.Name)
	}
	return v
}

// isMade tells whether an interface was made as the dataplane says.
func isMade(p vpp.Port) bool {
	_, _, is := p.Queues(made(p))
	return is
}

// findPort collects what dataplane and kernel know of an interface; with an error, as far as it came.
func (a *Agent) findPort(p vpp.Port, mounted linux.Mounted) (ipnet.Found, error) {
	f := ipnet.Found{Object: p.Name, Neighbours: p.Addresses, Labels: p.Labels}
	switch p.Interface.Type {
	case wire.TypeTap:
		return findTap(p, f)
	case wire.TypeMemif:
		return a.findMemif(p, f)
	default:
		return findVeth(p, f, mounted)
	}
}

func findTap(p vpp.Port, f ipnet.Found) (ipnet.Found, error) {
	f.Type, f.Netns.Path, f.Name = pod.TypeTap, p.Interface.Tap.Namespace, p.Interface.Tap.Name
	link, err := inspectInto(&f)
	if err != nil {
		return f, err
	}
	if !link.Tap {
		return f, fmt.Errorf("link %s is no tap", f.Name)
	}
	end, err := linuxEnd(p, link)
	f.MAC, f.MTU, f.RxQueues, f.TxQueues = end.MAC, end.MTU, end.Queues, end.Queues
	return f, err
}

// findVeth trusts the dataplane, which knows what was given, more than the link, which the pod may have changed.
func findVeth(p vpp.Port, f ipnet.Found, mounted linux.Mounted) (ipnet.Found, error) {
	host := p.Interface.AFPacket.Link
	f.Type, f.Name = pod.TypeVeth, host
	peer, err := mounted.Peer(host)
	if err != nil {
		return f, err
	}
	f.Netns.Path, f.Name = peer.Path, peer.Name
	link, err := inspectInto(&f)
	reads, writes, isMade := p.Queues(made(p))
	switch {
	case err != nil:
		return f, err
	case !link.Veth || link.Alias != peer.Alias:
		return f, fmt.Errorf("link %s with alias %q is not the other end of %s with alias %q", f.Name, link.Alias, host, peer.Alias)
	case !isMade:
		return f, fmt.Errorf("the interface was not made for veth %s", host)
	}
	f.MAC, f.MTU, f.RxQueues, f.TxQueues = p.PeerMAC, p.Interface.MTU, writes, reads
	if f.MAC.IsZero() {
		f.MAC = link.MAC
	}
	return f, nil
}

// inspectInto adds what the Linux end of an interface says.
func inspectInto(f *ipnet.Found) (linux.LinkState, error) {
	link, err := linux.InspectLink(f.Netns.Path, f.Name)
	if err == nil {
		f.Netns.Inode, f.Netns.Device = link.Inode, link.Device
		f.Alias, f.Addresses = link.Alias, link.Addresses
	}
	return link, err
}

// linuxEnd is what the tap was made with: as the dataplane reports it, or, where that says too little, as the link is. A
// pod may have changed its link, so the link alone proves nothing.
func linuxEnd(p vpp.Port, link linux.LinkState) (wire.Tap, error) {
	as := p.Interface.Tap
	for _, mac := range []wire.MAC{as.MAC, link.MAC} {
		for _, mtu := range []int{as.MTU, link.MTU} {
			end := wire.Tap{Namespace: as.Namespace, Name: as.Name, MAC: mac, MTU: mtu}
			if queues, _, is := p.Queues(wire.Interface{Type: wire.TypeTap, Tap: end}); is {
				end.Queues = queues
				return end, nil
			}
		}
	}
	return wire.Tap{}, fmt.Errorf("the tap was not made as the dataplane and link %s say", as.Name)
}
