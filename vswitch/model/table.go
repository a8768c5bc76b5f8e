package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

var families = [...]forward.Family{forward.IP4, forward.IP6}

// Table is the table of a VRF for one family.
type Table struct {
	forward.TableKey
	Name string
}

// table is a Table with its routes. It exists while it is added by the API or has users.
type table struct {
	Table
	byAPI   bool // added by the API
	users   int  // interfaces, tunnels and paths that use it
	entries map[netip.Prefix]*entry
}

// Tables are the tables of all VRFs, and the VRFs of interfaces.
type Tables struct {
	*barrier
	interfaces *Interfaces
	neighbours *Neighbours
	fib        *fib
}

// Add adds a table. A table that still exists because it has users keeps its name. Table 0 always exists.
func (ts *Tables) Add(k forward.TableKey, name string) {
	defer ts.change()()
	if k.ID == 0 {
		return
	}
	if ts.fib.tables[k] == nil {
		ts.fib.makeTable(k, cutTag(name))
		ts.fib.reinstallLookups(k)
	}
	ts.fib.tables[k].byAPI = true
}

// Delete deletes a table. A table with users keeps existing, with its routes, until its last user is gone. Unknown
// tables and table 0 are ignored.
func (ts *Tables) Delete(k forward.TableKey) {
	defer ts.change()()
	if t := ts.fib.tables[k]; t != nil && t.byAPI {
		t.byAPI = false
		ts.fib.deleteUnused(t)
	}
}

// List lists the tables by family and id.
func (ts *Tables) List() []Table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var list []Table
	for _, t := range ts.fib.tables {
		list = append(list, t.Table)
	}
	slices.SortFunc(list, func(a, b Table) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Set moves an interface to a VRF. It fails while the interface or its donor has addresses of the family.
func (ts *Tables) Set(index uint32, k forward.TableKey) error {
	return ts.interfaces.with(index, func(i *iface) error {
		if ts.fib.tables[k] == nil {
			return NoSuchFIB
		}
		if slices.ContainsFunc(ts.interfaces.addressesLocked(i), func(p netip.Prefix) bool {
			return forward.FamilyOf(p.Addr()) == k.Family
		}) {
			return AddressFoundForInterface
		}
		ts.setLocked(i, k)
		return nil
	})
}

// Of returns the VRF of an interface, or NoIndex with an error.
func (ts *Tables) Of(index uint32, f forward.Family) (id uint32, err error) {
	id = NoIndex
	err = ts.interfaces.with(index, func(i *iface) error { id = i.vrfs[f]; return nil })
	return id, err
}

func (fb *fib) makeTable(k forward.TableKey, name string) {
	if name == "" {
		name = fmt.Sprintf("ipv%d-VRF:%d", k.Family, k.ID)
	}
	fb.tables[k] = &table{Table: Table{TableKey: k, Name: name}, entries: map[netip.Prefix]*entry{}}
	fb.engine.AddTable(k)
	for _, s := range specialRoutes[k.Family] {
		path := dropPath
		path.Kind = s.kind
		fb.set(routeKey{k, netip.MustParsePrefix(s.prefix)}, s.source, fibRoute{paths: []Path{path}})
	}
}

var dropPath = Path{Kind: PathDrop, Interface: NoIndex, Weight: 1}

// specialRoutes are the routes that VPP adds to each table.
var specialRoutes = map[forward.Family][]struct {
	prefix string
	source Source
	kind   PathKind
}{
	forward.IP4: {
		{"0.0.0.0/0", SourceDefault, PathDrop}, {"0.0.0.0/32", SourceDefault, PathDrop}, {
			"224.0.0.0/4", SourceSpecial, PathDrop,
		},
		{"240.0.0.0/4", SourceSpecial, PathDrop}, {"255.255.255.255/32", SourceDefault, PathDrop},
	},
	forward.IP6: {{"::/0", SourceDefault, PathDrop}, {"fe80::/10", SourceSpecial, PathLinkLocal}},
}

// setLocked moves an interface and the host routes of its neighbours to a VRF.
func (ts *Tables) setLocked(i *iface, k forward.TableKey) {
	old := i.table(k.Family)
	if old == k {
		return
	}
	for a := range i.neighbours {
		if forward.FamilyOf(a) == k.Family {
			ts.neighbours.deleteRouteLocked(i, a)
		}
	}
	ts.fib.tables[k].users++
	i.vrfs[k.Family] = k.ID
	ts.interfaces.syncLocked(i)
	ts.fib.release(old)
	ts.neighbours.updateRoutesLocked(i)
}

// detachLocked removes an interface that is being deleted from its VRFs.
func (ts *Tables) detachLocked(i *iface) {
	for _, f := range families {
		ts.setLocked(i, forward.TableKey{Family: f})
	}
}

func (fb *fib) release(k forward.TableKey) {
	if t := fb.tables[k]; t != nil {
		t.users--
		fb.deleteUnused(t)
	}
}

// deleteUnused deletes a table without users, with its remaining routes.
func (fb *fib) deleteUnused(t *table) {
	if t.ID == 0 || t.byAPI || t.users > 0 {
		return
	}
	for _, p := range slices.Collect(maps.Keys(t.entries)) {
		for s := range t.entries[p].sources {
			fb.delete(routeKey{t.TableKey, p}, s)
		}
	}
	fb.tableDeleted(t.TableKey)
	delete(fb.tables, t.TableKey)
	fb.engine.DelTable(t.TableKey)
	fb.reinstallLookups(t.TableKey)
}

// reinstallLookups installs the routes that look up in a table, after it was added or deleted.
func (fb *fib) reinstallLookups(k forward.TableKey) {
	for other, t := range fb.tables {
		for p, e := range t.entries {
			_, r := e.best()
			if other.Family == k.Family && slices.ContainsFunc(r.paths, func(p Path) bool {
				return p.Kind == PathNormal && p.Interface == NoIndex && p.Table == k.ID
			}) {
				fb.install(routeKey{other, p})
			}
		}
	}
}

func (ts *Tables) stateLocked(s *State) {
	s.LastRoute = ts.fib.lastEntry
	for _, t := range ts.fib.tables {
		s.Tables = append(s.Tables, t.state())
	}
}

func (ts *Tables) restoreLocked(s *State) error {
	for _, t := range s.Tables {
		if t.Family != forward.IP4 && t.Family != forward.IP6 {
			return fmt.Errorf("%w: table %d of family %d", errState, t.ID, t.Family)
		}
		old := ts.fib.tables[t.TableKey]
		if old != nil && t.ID != 0 {
			return fmt.Errorf("%w: table %d of IPv%d twice", errState, t.ID, t.Family)
		}
		ts.fib.tables[t.TableKey] = &table{Table: t.Table, byAPI: t.ByAPI, entries: map[netip.Prefix]*entry{}}
		if old == nil {
			ts.engine.AddTable(t.TableKey)
		}
	}
	ts.fib.lastEntry = s.LastRoute
	return nil
}

// checkLocked checks that the VRFs of an interface exist, and counts their users.
func (ts *Tables) checkLocked(i *iface) error {
	used := []forward.TableKey{i.table(forward.IP4), i.table(forward.IP6)}
	if v := kindOf[VXLAN](i); v != nil {
		used = append(used, v.table())
	}
	for _, k := range used {
		t := ts.fib.tables[k]
		if t == nil {
			return fmt.Errorf("%w: %s is in table %d of IPv%d, which is missing", errState, i.Name, k.ID, k.Family)
		}
		t.users++
	}
	return nil
}

func (t *table) state() TableState {
	s := TableState{Table: t.Table, ByAPI: t.byAPI}
	for prefix, e := range t.entries {
		for source, r := range e.sources {
			route := RouteState{
				Prefix:       prefix,
				Written:      e.written,
				Number:       e.number,
				Source:       source,
				Attached:     r.attached,
				RouteWritten: r.written,
			}
			for _, p := range r.paths {
				route.Paths = append(route.Paths, PathState{p, p.gone})
			}
			s.Routes = append(s.Routes, route)
		}
	}
	return s
}
