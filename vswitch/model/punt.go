package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// PuntRedirect redirects packets that are addressed to the dataplane itself and that it does not handle; see
// forward.Redirect.
type PuntRedirect struct {
	Rx     uint32 // receiving interface; NoIndex: all interfaces without own redirect
	Family forward.Family
	Path   Path
}

type redirectKey struct {
	rx     uint32
	family forward.Family
}

// Punt has the redirects of packets for the dataplane itself.
type Punt struct {
	*barrier
	interfaces *Interfaces
	redirects  map[redirectKey]Path
	udp        map[forward.Family]bool
}

func newPunt(b *barrier, interfaces *Interfaces) *Punt {
	return &Punt{
		barrier:    b,
		interfaces: interfaces,
		redirects:  map[redirectKey]Path{},
		udp:        map[forward.Family]bool{},
	}
}

// SetRedirect adds or replaces a redirect. As in VPP the receiving interface need not exist. It supports one path
// over an interface.
func (p *Punt) SetRedirect(rx uint32, f forward.Family, paths []Path) error {
	defer p.change()()
	if len(paths) != 1 || paths[0].Kind != PathNormal {
		return Unsupported
	}
	if p.interfaces.byIndex[paths[0].Interface] == nil {
		return InvalidSwIfIndex
	}
	p.redirects[redirectKey{rx, f}] = paths[0]
	p.syncLocked()
	return nil
}

// DeleteRedirect deletes a redirect. It succeeds if the redirect is missing.
func (p *Punt) DeleteRedirect(rx uint32, f forward.Family) {
	defer p.change()()
	delete(p.redirects, redirectKey{rx, f})
	p.syncLocked()
}

// Redirects lists the redirect of a receiving interface, or all for NoIndex.
func (p *Punt) Redirects(rx uint32, f forward.Family) []PuntRedirect {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []PuntRedirect
	for k, path := range p.redirects {
		if k.family == f && (rx == NoIndex || rx == k.rx) {
			list = append(list, PuntRedirect{k.rx, k.family, path})
		}
	}
	slices.SortFunc(list, func(a, b PuntRedirect) int { return cmp.Compare(a.Rx, b.Rx) })
	return list
}

// SetUDP sets whether redirects apply to UDP packets to ports without listener. Otherwise these are rejected.
func (p *Punt) SetUDP(f forward.Family, on bool) {
	defer p.change()()
	p.udp[f] = on
	p.syncLocked()
}

// detachLocked disables the redirects to a deleted interface. They stay until their owner deletes them.
func (p *Punt) detachLocked(i *iface) {
	for k, path := range p.redirects {
		if path.Interface == i.Index {
			path.gone = true
			p.redirects[k] = path
			p.syncLocked()
		}
	}
}

func (p *Punt) syncLocked() {
	for _, i := range p.interfaces.byIndex {
		p.interfaces.syncLocked(i)
	}
}

// redirectLocked returns the redirect of an interface for the engine, or nil.
func (p *Punt) redirectLocked(i *iface, f forward.Family) *forward.Redirect {
	path, ok := p.redirects[redirectKey{i.Index, f}]
	if !ok {
		path, ok = p.redirects[redirectKey{NoIndex, f}]
	}
	if !ok {
		return nil
	}
	r := &forward.Redirect{Interface: path.Interface, NextHop: path.NextHop, UDP: p.udp[f]}
	if path.gone {
		r.Interface = NoIndex // drop
	}
	if r.NextHop.IsValid() && r.NextHop.IsUnspecified() {
		r.NextHop = netip.Addr{}
	}
	return r
}

func (p *Punt) configureLocked(i *iface, f *forward.Interface) {
	f.Redirect4 = p.redirectLocked(i, forward.IP4)
	f.Redirect6 = p.redirectLocked(i, forward.IP6)
}

func (p *Punt) stateLocked(s *State) {
	for k, path := range p.redirects {
		s.Redirects = append(s.Redirects, RedirectState{Rx: k.rx, Family: k.family, Path: PathState{path, path.gone}})
	}
	for _, f := range families {
		if p.udp[f] {
			s.PuntUDP = append(s.PuntUDP, f)
		}
	}
}

func (p *Punt) restoreLocked(s *State) error {
	for _, r := range s.Redirects {
		p.redirects[redirectKey{r.Rx, r.Family}] = r.Path.path()
	}
	for _, f := range s.PuntUDP {
		p.udp[f] = true
	}
	return nil
}
