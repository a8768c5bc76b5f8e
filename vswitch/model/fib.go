package model

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// Source is the source of a route, with the numbers of VPP's fib_source_t. Of several routes to a prefix the one with
// the lowest source is used.
type Source uint8

// The sources of routes.
const (
	SourceSpecial   Source = 1
	SourceInterface Source = 4
	SourceAPI       Source = 8
	SourceProxyND   Source = 13
	SourceAdjacency Source = 15
	SourceDefault   Source = 20
)

// PathKind is the action of a path.
type PathKind uint8

// The kinds of paths.
const (
	PathNormal      PathKind = iota
	PathLocal                // received here
	PathDrop                 // dropped
	PathUnreachable          // answered with ICMP unreachable
	PathProhibit             // answered with ICMP prohibited
	PathLinkLocal            // looked up in the link-local table of the interface; dropped here
)

// Path is one path of a route.
type Path struct {
	Kind       PathKind
	Interface  uint32     // NoIndex: look up NextHop, or if invalid the destination, in Table
	Table      uint32     // with NoIndex
	NextHop    netip.Addr // invalid: attached
	Weight     uint8
	Preference uint8 // the usable paths of the lowest preference are used

	gone bool // Interface was deleted; a new interface can have its index
}

// same compares paths without weight and preference.
func (p Path) same(q Path) bool {
	p.Weight = 0
	q.Weight = 0
	p.Preference = 0
	q.Preference = 0
	p.gone = false
	q.gone = false
	return p == q
}

// looksUp reports whether p looks up the destination in Table.
func (p Path) looksUp() bool {
	return p.Kind == PathNormal && p.Interface == NoIndex && !p.NextHop.IsValid()
}

// routeKey is a prefix in a table.
type routeKey struct {
	table  forward.TableKey
	prefix netip.Prefix
}

// fibRoute is the route of one source to a prefix.
type fibRoute struct {
	paths    []Path
	attached bool         // the prefix is on the link and can cover neighbours
	written  netip.Prefix // the prefix with host bits, or invalid
}

func (r fibRoute) equal(s fibRoute) bool {
	return r.attached == s.attached && slices.Equal(r.paths, s.paths)
}

// fib is the state of all tables. The lock of the Model guards it.
type fib struct {
	engine     Fibs
	log        *slog.Logger
	interfaces map[uint32]*iface // the interfaces of the Model
	tables     map[forward.TableKey]*table
	lastEntry  uint32 // last allocated number of an entry
	// tableDeleted and coverChanged are called after the deletion of a table and a change of a prefix.
	tableDeleted func(forward.TableKey)
	coverChanged func(routeKey)
}

func newFIB(engine Fibs, log *slog.Logger, interfaces map[uint32]*iface) *fib {
	return &fib{engine: engine, log: log, interfaces: interfaces, tables: map[forward.TableKey]*table{}}
}

// entry is the FIB entry of a prefix.
type entry struct {
	number  uint32       // stats index
	written netip.Prefix // prefix of its first source, with host bits, for dumps as in VPP
	sources map[Source]fibRoute
}

// best returns the route in use.
func (e *entry) best() (Source, fibRoute) {
	s := slices.Min(slices.Collect(maps.Keys(e.sources)))
	return s, e.sources[s]
}

// uses reports whether a route has a path over the interface.
func (e *entry) uses(index uint32) bool {
	for _, r := range e.sources {
		if slices.ContainsFunc(r.paths, func(p Path) bool { return p.Interface == index && !p.gone }) {
			return true
		}
	}
	return false
}

// set sets the route of a source in an existing table.
func (fb *fib) set(k routeKey, s Source, r fibRoute) *entry {
	t := fb.tables[k.table]
	e := t.entries[k.prefix]
	if e == nil {
		fb.lastEntry++
		e = &entry{number: fb.lastEntry, written: k.prefix, sources: map[Source]fibRoute{}}
		if r.written.IsValid() {
			e.written = r.written
		}
		t.entries[k.prefix] = e
	}
	old := e.sources[s]
	e.sources[s] = r
	for _, p := range r.paths {
		fb.attachPath(k, p)
	}
	fb.detachPaths(k, old.paths)
	fb.install(k)
	fb.coverChanged(k)
	return e
}

// delete deletes the route of a source, if it exists.
func (fb *fib) delete(k routeKey, s Source) {
	old, ok := fb.route(k, s)
	if !ok {
		return
	}
	delete(fb.entry(k).sources, s)
	fb.install(k)
	fb.detachPaths(k, old.paths)
	fb.coverChanged(k)
}

func (fb *fib) entry(k routeKey) *entry {
	if t := fb.tables[k.table]; t != nil {
		return t.entries[k.prefix]
	}
	return nil
}

// route returns the route of a source.
func (fb *fib) route(k routeKey, s Source) (r fibRoute, ok bool) {
	if e := fb.entry(k); e != nil {
		r, ok = e.sources[s]
	}
	return r, ok
}

// attachPath registers the route at the interface or table of a path.
func (fb *fib) attachPath(k routeKey, p Path) {
	if i := fb.interfaces[p.Interface]; i != nil && !p.gone {
		i.routes[k] = struct{}{}
	}
	if p.looksUp() {
		fb.tables[forward.TableKey{Family: k.table.Family, ID: p.Table}].users++
	}
}

func (fb *fib) detachPaths(k routeKey, paths []Path) {
	e := fb.entry(k)
	for _, p := range paths {
		if i := fb.interfaces[p.Interface]; i != nil && (e == nil || !e.uses(p.Interface)) {
			delete(i.routes, k)
		}
		if p.looksUp() {
			fb.release(forward.TableKey{Family: k.table.Family, ID: p.Table})
		}
	}
}

// install writes the best route of a prefix to the engine, or deletes the prefix.
func (fb *fib) install(k routeKey) {
	e := fb.entry(k)
	if e == nil {
		return
	}
	if len(e.sources) == 0 {
		delete(fb.tables[k.table].entries, k.prefix)
		fb.engine.DelRoute(k.table, k.prefix)
		return
	}
	_, r := e.best()
	if err := fb.engine.SetRoute(k.table, k.prefix, fb.resolve(k, r)); err != nil {
		fb.log.Error("packet path rejected a route", "prefix", k.prefix, "table", k.table.ID, "err", err)
	}
}

// resolve returns the route with the usable paths of the lowest preference. checkPaths ensures that a path that does
// not forward is the only one of its preference.
func (fb *fib) resolve(k routeKey, r fibRoute) forward.Route {
	drop := forward.Route{Action: forward.Drop}
	var usable []Path
	for _, p := range r.paths {
		switch {
		case !fb.usable(k.table.Family, p):
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
		out.Paths = append(out.Paths, forward.Path{
			Interface: p.Interface,
			NextHop:   p.NextHop,
			Table:     p.Table,
			Weight:    p.Weight,
		})
	}
	return out
}

// actions are the actions of all kinds of paths but PathNormal.
var actions = [...]forward.Action{
	PathLocal:       forward.Local,
	PathDrop:        forward.Drop,
	PathUnreachable: forward.Unreachable,
	PathProhibit:    forward.Prohibit,
	PathLinkLocal:   forward.Drop,
}

func (fb *fib) usable(f forward.Family, p Path) bool {
	if p.Kind != PathNormal {
		return true
	}
	if p.Interface == NoIndex {
		return fb.tables[forward.TableKey{Family: f, ID: p.Table}] != nil
	}
	i := fb.interfaces[p.Interface]
	return i != nil && !p.gone && i.AdminUp && i.LinkUp
}

// reinstall installs the routes over an interface after a change of its state.
func (fb *fib) reinstall(i *iface) {
	for k := range i.routes {
		fb.install(k)
	}
}

// detach disables the paths over a deleted interface. As in VPP the routes stay until their owner deletes them.
func (fb *fib) detach(i *iface) {
	for k := range i.routes {
		for s, r := range fb.entry(k).sources {
			paths := slices.Clone(r.paths)
			for n := range paths {
				paths[n].gone = paths[n].gone || paths[n].Interface == i.Index
			}
			fb.entry(k).sources[s] = fibRoute{paths: paths, attached: r.attached}
		}
		fb.install(k)
	}
	clear(i.routes)
}

// restore adds the route of a source without writing it to the engine.
func (fb *fib) restore(k routeKey, r RouteState, route fibRoute) error {
	if !r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked() || forward.FamilyOf(r.Prefix.Addr()) != k.table.Family ||
		len(r.Paths) > maxPaths {
		return fmt.Errorf("%w: route to %v in table %d", errState, r.Prefix, k.table.ID)
	}
	for _, p := range route.paths {
		if p.Kind > PathLinkLocal ||
			p.looksUp() && fb.tables[forward.TableKey{Family: k.table.Family, ID: p.Table}] == nil {
			return fmt.Errorf("%w: path of the route to %v in table %d", errState, r.Prefix, k.table.ID)
		}
	}
	t := fb.tables[k.table]
	e := t.entries[k.prefix]
	if e == nil {
		e = &entry{number: r.Number, written: r.Written, sources: map[Source]fibRoute{}}
		t.entries[k.prefix] = e
	}
	e.sources[r.Source] = route
	for _, p := range route.paths {
		fb.attachPath(k, p)
	}
	return nil
}
