package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// PuntRedirect sends packets for the dataplane itself that it does not take elsewhere: see forward.Redirect.
type PuntRedirect struct {
	Rx     uint32 // the interface that receives them; NoIndex: each that has no redirect of its own
	Family forward.Family
	Path   Path
}

type redirectKey struct {
	rx     uint32
	family forward.Family
}

// SetPuntRedirect adds a redirect, in the place of the one that may be there. As in VPP it does not matter whether the
// receiving interface exists. One path is served, by an interface.
func (m *Model) SetPuntRedirect(rx uint32, f forward.Family, paths []Path) error {
	defer m.change()()
	if len(paths) != 1 || paths[0].Kind != PathNormal {
		return Unsupported
	}
	if m.interfaces[paths[0].Interface] == nil {
		return InvalidSwIfIndex
	}
	m.redirects[redirectKey{rx, f}] = paths[0]
	m.showRedirectsLocked()
	return nil
}

// DeletePuntRedirect removes a redirect; a missing one is no error.
func (m *Model) DeletePuntRedirect(rx uint32, f forward.Family) {
	defer m.change()()
	delete(m.redirects, redirectKey{rx, f})
	m.showRedirectsLocked()
}

// PuntRedirects lists the redirect of an interface, or all for NoIndex.
func (m *Model) PuntRedirects(rx uint32, f forward.Family) []PuntRedirect {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []PuntRedirect
	for k, path := range m.redirects {
		if k.family == f && (rx == NoIndex || rx == k.rx) {
			list = append(list, PuntRedirect{k.rx, k.family, path})
		}
	}
	slices.SortFunc(list, func(a, b PuntRedirect) int { return cmp.Compare(a.Rx, b.Rx) })
	return list
}

// SetPuntUDP has UDP to ports that nothing listens on redirected too, or refused.
func (m *Model) SetPuntUDP(f forward.Family, on bool) {
	defer m.change()()
	m.puntUDP[f] = on
	m.showRedirectsLocked()
}

func (m *Model) showRedirectsLocked() {
	for _, n := range m.indexesLocked() {
		m.setEngineLocked(m.interfaces[n])
	}
}

// redirectLocked is what the engine needs of an interface's redirect.
func (m *Model) redirectLocked(i *iface, f forward.Family) *forward.Redirect {
	path, is := m.redirects[redirectKey{i.Index, f}]
	if !is {
		path, is = m.redirects[redirectKey{NoIndex, f}]
	}
	if !is {
		return nil
	}
	next := path.NextHop
	if next.IsValid() && next.IsUnspecified() {
		next = netip.Addr{}
	}
	return &forward.Redirect{Interface: path.Interface, NextHop: next, UDP: m.puntUDP[f]}
}
