package forward

import (
	"errors"
	"maps"
	"slices"
)

// snapshot is the complete configuration that workers use. It is immutable once published: control clones its slices
// and replaces the elements that change.
type snapshot struct {
	interfaces   []*iface        // by index
	fibs         []*fib          // by slot
	longPrefixes []*longPrefixes // by slot
	tables       map[TableKey]int
	bridges      []*bridge // by slot; slot 0 is unused
	proxies      *proxies
	tunnels      tunnels
}

func newSnapshot() *snapshot {
	s := &snapshot{tables: map[TableKey]int{}}
	s.addTable(TableKey{IP4, 0})
	s.addTable(TableKey{IP6, 0})
	return s
}

func (s *snapshot) clone() *snapshot {
	return &snapshot{
		interfaces:   slices.Clone(s.interfaces),
		fibs:         slices.Clone(s.fibs),
		longPrefixes: slices.Clone(s.longPrefixes),
		tables:       s.tables,
		bridges:      slices.Clone(s.bridges),
		proxies:      s.proxies, tunnels: s.tunnels,
	}
}

func (s *snapshot) iface(index uint32) *iface {
	if int(index) >= len(s.interfaces) {
		return nil
	}
	return s.interfaces[index]
}

func (s *snapshot) put(i *iface) {
	for int(i.index) >= len(s.interfaces) {
		s.interfaces = append(s.interfaces, nil)
	}
	s.interfaces[i.index] = i
}

// slot returns the index of a table in fibs, or -1.
func (s *snapshot) slot(k TableKey) int {
	if i, ok := s.tables[k]; ok {
		return i
	}
	return -1
}

func (s *snapshot) addTable(k TableKey) {
	slot := slices.Index(s.fibs, nil)
	if slot < 0 {
		slot = len(s.fibs)
		s.fibs = append(s.fibs, nil)
		s.longPrefixes = append(s.longPrefixes, nil)
	}
	s.fibs[slot] = new(fib)
	s.longPrefixes[slot] = new(longPrefixes)
	s.tables = maps.Clone(s.tables)
	s.tables[k] = slot
	s.updateSlots()
}

func (s *snapshot) delTable(k TableKey) {
	s.fibs[s.tables[k]] = nil
	s.longPrefixes[s.tables[k]] = nil
	s.tables = maps.Clone(s.tables)
	delete(s.tables, k)
	s.updateSlots()
}

// updateSlots updates the table slots of all interfaces after a table was added or deleted.
func (s *snapshot) updateSlots() {
	for _, i := range s.interfaces {
		if i == nil {
			continue
		}
		f4 := s.slot(TableKey{IP4, i.table4})
		f6 := s.slot(TableKey{IP6, i.table6})
		if t := i.tunnel.withCurrentSlot(s); f4 != i.fib4 || f6 != i.fib6 || t != i.tunnel {
			next := *i
			next.fib4 = f4
			next.fib6 = f6
			next.tunnel = t
			s.put(&next)
		}
	}
}

// Errors that control handles.
var (
	ErrNoInterface = errors.New("no such interface")
	ErrNoTable     = errors.New("no such table")
	ErrNoPort      = errors.New("no such port")
	ErrPortExists  = errors.New("the interface has a port")
	ErrBadRoute    = errors.New("route cannot be forwarded")
	ErrStopped     = errors.New("the forwarding engine has stopped")
)
