package model

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// Source says who made a route. The numbers are VPP's fib_source_t; of several routes to
// one prefix the one with the lowest number is used.
type Source uint8

// The sources that exist here.
const (
	SourceSpecial   Source = 1
	SourceInterface Source = 4
	SourceAPI       Source = 8
	SourceProxyND   Source = 13
	SourceAdjacency Source = 15
	SourceDefault   Source = 20
)

// PathKind says what a path does.
type PathKind uint8

// The kinds of path.
const (
	PathNormal      PathKind = iota
	PathLocal                // received here
	PathDrop                 // dropped
	PathUnreachable          // answered with ICMP unreachable
	PathProhibit             // answered with ICMP prohibited
	PathLinkLocal            // looked up among the link-local addresses of the interface; here as good as dropped
)

// Path is one way of a route.
type Path struct {
	Kind       PathKind
	Interface  uint32     // NoIndex: look NextHop up in Table, or without one the packet's destination
	Table      uint32     // with NoIndex
	NextHop    netip.Addr // invalid: attached
	Weight     uint8
	Preference uint8 // the lowest of the usable ones are used

	gone bool // Interface was deleted; another of its number is not meant
}

// same says whether p and q lead the same way, whatever their weight.
func (p Path) same(q Path) bool {
	p.Weight, q.Weight = 0, 0
	p.Preference, q.Preference = 0, 0
	p.gone, q.gone = false, false
	return p == q
}

// looksUp says whether p sends packets through a table again, without a next hop.
func (p Path) looksUp() bool {
	return p.Kind == PathNormal && p.Interface == NoIndex && !p.NextHop.IsValid()
}

// routeKey names a prefix of a table.
type routeKey struct {
	table  forward.TableKey
	prefix netip.Prefix
}

// fibRoute is what one source wants for a prefix.
type fibRoute struct {
	paths    []Path
	attached bool // the prefix is on the link: it can cover neighbours

	written netip.Prefix // the prefix with its host bits; invalid: it had none
}

func (r fibRoute) equal(s fibRoute) bool {
	return r.attached == s.attached && slices.Equal(r.paths, s.paths)
}

// entry is a prefix in a table.
type entry struct {
	number  uint32       // names it in replies
	written netip.Prefix // as its first source wrote it, with host bits: dumps show that, as in VPP
	sources map[Source]fibRoute
}

// best is the route that is used.
func (e *entry) best() (Source, fibRoute) {
	s := slices.Min(slices.Collect(maps.Keys(e.sources)))
	return s, e.sources[s]
}

// uses says whether any source's route has a path over the interface.
func (e *entry) uses(index uint32) bool {
	for _, r := range e.sources {
		if slices.ContainsFunc(r.paths, func(p Path) bool { return p.Interface == index && !p.gone }) {
			return true
		}
	}
	return false
}

// setLocked gives a source's route to a prefix, in place of the one it had. The table exists.
func (m *Model) setLocked(k routeKey, s Source, r fibRoute) *entry {
	t := m.tables[k.table]
	e := t.entries[k.prefix]
	if e == nil {
		m.lastEntry++
		e = &entry{number: m.lastEntry, written: k.prefix, sources: map[Source]fibRoute{}}
		if r.written.IsValid() {
			e.written = r.written
		}
		t.entries[k.prefix] = e
	}
	old := e.sources[s]
	e.sources[s] = r
	for _, p := range r.paths {
		m.attachPathLocked(k, p)
	}
	m.detachPathsLocked(k, old.paths)
	m.installLocked(k)
	m.coverChangedLocked(k)
	return e
}

// dropLocked takes a source's route from a prefix; one that has none is no error.
func (m *Model) dropLocked(k routeKey, s Source) {
	e := m.entryLocked(k)
	if e == nil {
		return
	}
	old, ok := e.sources[s]
	if !ok {
		return
	}
	delete(e.sources, s)
	m.installLocked(k)
	m.detachPathsLocked(k, old.paths)
	m.coverChangedLocked(k)
}

func (m *Model) entryLocked(k routeKey) *entry {
	if t := m.tables[k.table]; t != nil {
		return t.entries[k.prefix]
	}
	return nil
}

// attachPathLocked notes what the route must be looked at again for.
func (m *Model) attachPathLocked(k routeKey, p Path) {
	if i := m.interfaces[p.Interface]; i != nil && !p.gone {
		i.carries[k] = struct{}{}
	}
	if p.looksUp() {
		m.tables[forward.TableKey{Family: k.table.Family, ID: p.Table}].users++
	}
}

func (m *Model) detachPathsLocked(k routeKey, paths []Path) {
	e := m.entryLocked(k)
	for _, p := range paths {
		if i := m.interfaces[p.Interface]; i != nil && (e == nil || !e.uses(p.Interface)) {
			delete(i.carries, k)
		}
		if p.looksUp() {
			m.releaseTableLocked(forward.TableKey{Family: k.table.Family, ID: p.Table})
		}
	}
}

// installLocked tells the engine what the prefix's best route is now, or that there is none.
func (m *Model) installLocked(k routeKey) {
	e := m.entryLocked(k)
	if e == nil {
		return
	}
	if len(e.sources) == 0 {
		delete(m.tables[k.table].entries, k.prefix)
		m.engine.DelRoute(k.table, k.prefix)
		return
	}
	_, r := e.best()
	if err := m.engine.SetRoute(k.table, k.prefix, m.resolveLocked(k, r)); err != nil {
		m.log.Error("packet path refused a route", "prefix", k.prefix, "table", k.table.ID, "err", err)
	}
}

// resolveLocked is a route as far as it can be used: the most preferred of the paths that lead somewhere now. A path that does not
// forward is alone among those of its preference.
func (m *Model) resolveLocked(k routeKey, r fibRoute) forward.Route {
	drop := forward.Route{Action: forward.Drop}
	var usable []Path
	for _, p := range r.paths {
		switch {
		case !m.usableLocked(k.table.Family, p):
		case len(usable) > 0 && p.Preference > usable[0].Preference:
		case len(usable) > 0 && p.Preference < usable[0].Preference:
			usable = append(usable[:0], p)
		default:
			usable = append(usable, p)
		}
	}
	if len(usable) == 0 {
		return drop
	}
	if kind := usable[0].Kind; kind != PathNormal {
		return forward.Route{Action: actions[kind]}
	}
	out := forward.Route{Action: forward.Forward}
	for _, p := range usable {
		out.Paths = append(out.Paths, forward.Path{Interface: p.Interface, NextHop: p.NextHop, Table: p.Table, Weight: p.Weight})
	}
	return out
}

// actions are what the kinds of path but PathNormal mean for the engine.
var actions = [...]forward.Action{
	PathLocal:       forward.Local,
	PathDrop:        forward.Drop,
	PathUnreachable: forward.Unreachable,
	PathProhibit:    forward.Prohibit,
	PathLinkLocal:   forward.Drop,
}

func (m *Model) usableLocked(f forward.Family, p Path) bool {
	if p.Kind != PathNormal {
		return true
	}
	if p.Interface == NoIndex {
		return m.tables[forward.TableKey{Family: f, ID: p.Table}] != nil
	}
	i := m.interfaces[p.Interface]
	return i != nil && !p.gone && i.AdminUp && i.LinkUp
}

// reviewLocked installs again what leads over an interface whose state has changed.
func (m *Model) reviewLocked(i *iface) {
	for k := range i.carries {
		m.installLocked(k)
	}
}

// abandonLocked leaves the routes over an interface that goes without that path. They stay in
// their tables, as in VPP, until their owner removes them.
func (m *Model) abandonLocked(i *iface) {
	for k := range i.carries {
		for s, r := range m.entryLocked(k).sources {
			paths := slices.Clone(r.paths)
			for n := range paths {
				paths[n].gone = paths[n].gone || paths[n].Interface == i.Index
			}
			m.entryLocked(k).sources[s] = fibRoute{paths: paths, attached: r.attached}
		}
		m.installLocked(k)
	}
	clear(i.carries)
}
