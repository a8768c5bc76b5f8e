package api

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

type index = interface_types.InterfaceIndex

// bridgeMachine applies the same calls to a server and to a reference model of bridge domains.
type bridgeMachine struct {
	*bridger
	taps    map[index]bool
	loops   map[index]frame.MAC
	bridges map[uint32]*refBridge
}

// refBridge is the expected state of a bridge domain.
type refBridge struct {
	learn   bool
	age     uint8
	bvi     index
	members []l2.BridgeDomainSwIf
	macs    map[frame.MAC]refMAC
}

type refMAC struct {
	on                           index
	static, filter, bvi, learned bool
}

func TestBridgeDumpsMatchReferenceAfterRandomCalls(t *testing.T) {
	b := newBridger(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &bridgeMachine{
			bridger: b,
			taps:    map[index]bool{},
			loops:   map[index]frame.MAC{},
			bridges: map[uint32]*refBridge{},
		}
		defer m.wipe(t)
		for range 3 {
			m.taps[b.tap(t)] = true
			loop := b.loopback(t)
			mac, err := invoke(t, b.testClient, b.ifs.SwInterfaceGetMacAddress, &interfaces.SwInterfaceGetMacAddress{
				SwIfIndex: loop,
			})
			if err != nil {
				t.Fatalf("MAC: %v", err)
			}
			m.loops[loop] = frame.MAC(mac.MacAddress)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "add": m.addBridge, "delete": m.delBridge, "set": m.setBridge, "join": m.joinBridge,
			"leave":            m.leaveBridge,
			"delete interface": m.deleteInterface, "learn": m.learn, "flush": m.flush, "add MAC": m.addMAC,
			"delete MAC": m.delMAC,
		})
	})
}

func (m *bridgeMachine) id(t *rapid.T) uint32 {
	return rapid.Uint32Range(1, 3).Draw(t, "bridge domain")
}

func (m *bridgeMachine) index(t *rapid.T) index {
	all := append(slices.Collect(maps.Keys(m.taps)), slices.Collect(maps.Keys(m.loops))...)
	slices.Sort(all)
	return rapid.SampledFrom(append(all, unknown)).Draw(t, "interface")
}

func (m *bridgeMachine) exists(i index) bool { return m.taps[i] || m.loops[i] != frame.MAC{} }

func (m *bridgeMachine) mac(t *rapid.T) frame.MAC {
	all := []frame.MAC{{2, 1}, {2, 2}, {2, 3}}
	for _, i := range slices.Sorted(maps.Keys(m.loops)) {
		all = append(all, m.loops[i])
	}
	return rapid.SampledFrom(all).Draw(t, "mac")
}

// of returns the bridge domain of an interface, or nil.
func (m *bridgeMachine) of(i index) *refBridge {
	for _, b := range m.bridges {
		if slices.ContainsFunc(b.members, func(s l2.BridgeDomainSwIf) bool { return s.SwIfIndex == i }) {
			return b
		}
	}
	return nil
}

func (m *bridgeMachine) addBridge(t *rapid.T) {
	id := m.id(t)
	_, err := m.add(t, id)
	if agree(t, "add", err, m.bridges[id] == nil) {
		m.bridges[id] = &refBridge{learn: true, age: 5, bvi: noInterface, macs: map[frame.MAC]refMAC{}}
	}
}

func (m *bridgeMachine) delBridge(t *rapid.T) {
	id := m.id(t)
	b := m.bridges[id]
	if agree(t, "delete", m.del(t, id), b != nil && len(b.members) == 0) {
		delete(m.bridges, id)
	}
}

func (m *bridgeMachine) setBridge(t *rapid.T) {
	id := m.id(t)
	age := rapid.Uint8().Draw(t, "age")
	learn := rapid.Bool().Draw(t, "learn")
	b := m.bridges[id]
	_, errAge := invoke(t, m.testClient, m.l2.BridgeDomainSetMacAge, &l2.BridgeDomainSetMacAge{BdID: id, MacAge: age})
	_, errFlags := invoke(t, m.testClient, m.l2.BridgeFlags, &l2.BridgeFlags{
		BdID:  id,
		IsSet: learn,
		Flags: l2.BRIDGE_API_FLAG_LEARN,
	})
	if agree(t, "age", errAge, b != nil) && agree(t, "flags", errFlags, b != nil) {
		b.age = age
		b.learn = learn
	}
}

func (m *bridgeMachine) joinBridge(t *rapid.T) {
	i := m.index(t)
	id := m.id(t)
	group := rapid.Uint8Range(0, 2).Draw(t, "group")
	bvi := rapid.Bool().Draw(t, "bvi")
	req := l2.SwInterfaceSetL2Bridge{RxSwIfIndex: i, BdID: id, Shg: group}
	if bvi {
		req.PortType = l2.L2_API_PORT_TYPE_BVI
	}
	b := m.bridges[id]
	taken := b != nil && b.bvi != noInterface && b.bvi != i
	if !agree(t, "join", m.join(t, req), m.exists(i) && (!bvi || !m.taps[i] && !taken)) {
		return
	}
	if b == nil {
		b = &refBridge{learn: true, bvi: noInterface, macs: map[frame.MAC]refMAC{}}
		m.bridges[id] = b
	}
	m.left(i)
	member := l2.BridgeDomainSwIf{SwIfIndex: i, Shg: group}
	if !bvi {
		b.members = append(b.members, member)
		return
	}
	b.bvi = i
	b.members = append([]l2.BridgeDomainSwIf{member}, b.members...)
	b.macs[m.loops[i]] = refMAC{on: i, static: true, bvi: true}
}

// left updates the reference after an interface has left its bridge domain.
func (m *bridgeMachine) left(i index) {
	b := m.of(i)
	if b == nil {
		return
	}
	b.members = slices.DeleteFunc(b.members, func(s l2.BridgeDomainSwIf) bool { return s.SwIfIndex == i })
	maps.DeleteFunc(b.macs, func(mac frame.MAC, e refMAC) bool {
		return e.on == i && (e.learned || b.bvi == i && mac == m.loops[i])
	})
	if b.bvi == i {
		b.bvi = noInterface
	}
}

func (m *bridgeMachine) leaveBridge(t *rapid.T) {
	i := m.index(t)
	if agree(t, "leave", m.leave(t, i), m.exists(i)) {
		m.left(i)
	}
}

func (m *bridgeMachine) deleteInterface(t *rapid.T) {
	i := m.index(t)
	_, errTap := invoke(t, m.testClient, m.testClient.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: i})
	_, errLoop := invoke(t, m.testClient, m.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: i})
	agree(t, "delete tap", errTap, m.taps[i])
	agree(t, "delete loopback", errLoop, m.loops[i] != frame.MAC{})
	m.left(i)
	delete(m.taps, i)
	delete(m.loops, i)
}

// learn makes the packet path learn a MAC without a static entry on a member.
func (m *bridgeMachine) learn(t *rapid.T) {
	i := m.index(t)
	id := m.id(t)
	mac := m.mac(t)
	b := m.bridges[id]
	if b == nil || m.of(i) != b || b.macs[mac].static || b.macs[mac].on == i {
		return
	}
	m.engine.Learn(id, mac, uint32(i))
	b.macs[mac] = refMAC{on: i, learned: true}
}

func (m *bridgeMachine) flush(t *rapid.T) {
	i := m.index(t)
	id := m.id(t)
	_, errBD := invoke(t, m.testClient, m.l2.L2fibFlushBd, &l2.L2fibFlushBd{BdID: id})
	_, errInt := invoke(t, m.testClient, m.l2.L2fibFlushInt, &l2.L2fibFlushInt{SwIfIndex: i})
	agree(t, "flush bridge domain", errBD, m.bridges[id] != nil)
	agree(t, "flush interface", errInt, m.exists(i))
	for other, b := range m.bridges {
		maps.DeleteFunc(b.macs, func(_ frame.MAC, e refMAC) bool { return e.learned && (other == id || e.on == i) })
	}
}

func (m *bridgeMachine) addMAC(t *rapid.T) {
	i := m.index(t)
	id := m.id(t)
	mac := m.mac(t)
	filter := rapid.Bool().Draw(t, "filter")
	_, err := invoke(t, m.testClient, m.l2.L2fibAddDel, &l2.L2fibAddDel{
		IsAdd:     true,
		BdID:      id,
		Mac:       [6]byte(mac),
		SwIfIndex: i,
		StaticMac: true,
		FilterMac: filter,
	})
	b := m.bridges[id]
	if !agree(t, "add MAC", err, b != nil && (filter || m.of(i) != nil)) {
		return
	}
	b.macs[mac] = refMAC{on: i, static: true, filter: filter}
	if filter {
		b.macs[mac] = refMAC{on: noInterface, static: true, filter: true}
	}
}

func (m *bridgeMachine) delMAC(t *rapid.T) {
	i := m.index(t)
	id := m.id(t)
	mac := m.mac(t)
	if rapid.Bool().Draw(t, "any interface") {
		i = 0
	}
	_, err := invoke(t, m.testClient, m.l2.L2fibAddDel, &l2.L2fibAddDel{BdID: id, Mac: [6]byte(mac), SwIfIndex: i})
	b := m.bridges[id]
	there := false
	if b != nil {
		e, ok := b.macs[mac]
		there = ok && (i == 0 || i == e.on)
	}
	if agree(t, "delete MAC", err, there) {
		delete(b.macs, mac)
	}
}

// check compares the dumps and the packet path with the reference.
func (m *bridgeMachine) check(t *rapid.T) {
	got := map[string]bool{}
	want := map[string]bool{}
	for _, d := range m.bridger.bridges(t, ^uint32(0)) {
		got[fmt.Sprint(d.BdID, d.Learn, d.MacAge, d.BviSwIfIndex, d.SwIfDetails)] = true
	}
	for _, e := range m.macs(t, ^uint32(0)) {
		got[fmt.Sprint(e.BdID, frame.MAC(e.Mac), e.SwIfIndex, e.StaticMac, e.FilterMac, e.BviMac)] = true
	}
	for id, b := range m.bridges {
		want[fmt.Sprint(id, b.learn, b.age, b.bvi, b.members)] = true
		for mac, e := range b.macs {
			want[fmt.Sprint(id, mac, e.on, e.static, e.filter, e.bvi)] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("wanted (-) and got (+):\n%s", diff)
	}
	if m.engine.Unpublished() {
		t.Fatalf("changes were not published")
	}
	m.engine.Look(func(s modeltest.State) { m.checkEngine(t, s) })
	checkRestore(t, m.model, m.engine)
}

func (m *bridgeMachine) checkEngine(t *rapid.T, s modeltest.State) {
	if len(s.Bridges) != len(m.bridges) {
		t.Fatalf("the packet path has %d bridge domains, wanted %d", len(s.Bridges), len(m.bridges))
	}
	for id, b := range m.bridges {
		e := s.Bridges[id]
		n := len(e.Members)
		if e.BVI != ^uint32(0) {
			n++
		}
		if e.BVI != uint32(b.bvi) || n != len(b.members) || e.Learn != b.learn || e.Age.Minutes() != float64(b.age) {
			t.Fatalf("the packet path has %+v, wanted %+v", e, b)
		}
		for _, f := range e.Configured {
			if r := b.macs[f.MAC]; r.on != index(f.Interface) || r.static != f.Static || r.filter != f.Filter {
				t.Fatalf("the packet path has %+v, wanted %+v", f, r)
			}
		}
	}
}

// wipe deletes all and checks that no state is left.
func (m *bridgeMachine) wipe(t *rapid.T) {
	for _, i := range append(slices.Collect(maps.Keys(m.taps)), slices.Collect(maps.Keys(m.loops))...) {
		_, _ = invoke(t, m.testClient, m.testClient.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: i})
		_, _ = invoke(t, m.testClient, m.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: i})
	}
	for id := range m.bridges {
		if err := m.del(t, id); err != nil {
			t.Fatalf("delete bridge domain %d: %v", id, err)
		}
	}
	m.engine.Look(func(s modeltest.State) {
		if len(s.Bridges)+len(s.Learned) > 0 || len(s.Interfaces) != 1 {
			t.Fatalf("left in the packet path: %+v %+v", s.Bridges, s.Learned)
		}
	})
}
