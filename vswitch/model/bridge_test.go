package model

import (
	"errors"
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// bridged creates a tap in bridge domain 1.
func (b *testModel) bridged(t *testing.T) uint32 {
	t.Helper()
	index := b.tap(t)
	do(t, b.Bridges.Join(Join{Interface: index, Bridge: 1}))
	return index
}

// only returns the only entry of bridge domain 1.
func (b *testModel) only(t *testing.T) L2Entry {
	t.Helper()
	list := b.L2FIB.List(1)
	if len(list) != 1 {
		t.Fatalf("entries %+v", list)
	}
	return list[0]
}

func TestLearningReplacesDynamicL2Entry(t *testing.T) {
	b := newTestModel()
	one := b.bridged(t)
	two := b.bridged(t)
	set := L2Entry{Bridge: 1, MAC: someMAC, Interface: one}
	do(t, b.L2FIB.Add(set))
	if e := b.only(t); e != set {
		t.Errorf("configured: %+v", e)
	}
	b.engine.Learn(1, someMAC, two)
	if e := b.only(t); !e.Learned || e.Interface != two {
		t.Errorf("after learning on another interface: %+v", e)
	}
	do(t, b.L2FIB.Add(set))
	if e := b.only(t); e != set {
		t.Errorf("configured again: %+v", e)
	}
	b.engine.Learn(1, someMAC, two)
	if err := b.L2FIB.Delete(L2Entry{Bridge: 1, MAC: someMAC, Interface: 77}); !errors.Is(err, NoSuchEntry) {
		t.Errorf("deleted for another interface: %v", err)
	}
	do(t, b.L2FIB.Delete(L2Entry{Bridge: 1, MAC: someMAC, Interface: two}))
	if list := b.L2FIB.List(NoIndex); len(list) != 0 {
		t.Errorf("left %+v", list)
	}
}

func TestDeleteL2EntryDeletesLearnedMAC(t *testing.T) {
	b := newTestModel()
	index := b.bridged(t)
	b.engine.Learn(1, someMAC, index)
	if err := b.L2FIB.Delete(L2Entry{Bridge: 1, MAC: someMAC, Interface: NoIndex}); !errors.Is(err, NoSuchEntry) {
		t.Errorf("as a filter: %v", err)
	}
	do(t, b.L2FIB.Delete(L2Entry{Bridge: 1, MAC: someMAC}))
	if err := b.L2FIB.Delete(L2Entry{Bridge: 1, MAC: someMAC}); !errors.Is(err, NoSuchEntry) {
		t.Errorf("twice: %v", err)
	}
}

func TestChangesThatDeleteTheMACsLearnedOnAnInterface(t *testing.T) {
	for rule, end := range map[string]func(*testModel, uint32) error{
		"set interface down": func(b *testModel, i uint32) error { return b.SetAdminUp(i, false) },
		"leave bridge":       func(b *testModel, i uint32) error { return b.Bridges.Leave(i) },
		"join the same bridge again": func(b *testModel, i uint32) error {
			return b.Bridges.Join(Join{Interface: i, Bridge: 1})
		},
		"join another bridge": func(b *testModel, i uint32) error {
			return b.Bridges.Join(Join{Interface: i, Bridge: 2})
		},
		"delete interface": func(b *testModel, i uint32) error { return b.Taps.Delete(i) },
		"flush interface":  func(b *testModel, i uint32) error { return b.L2FIB.FlushInterface(i) },
		"flush all":        func(b *testModel, _ uint32) error { b.L2FIB.FlushAll(); return nil },
		"flush bridge":     func(b *testModel, _ uint32) error { return b.L2FIB.FlushBridge(1) },
	} {
		t.Run(rule, func(t *testing.T) {
			b := newTestModel()
			index := b.bridged(t)
			b.engine.Learn(1, someMAC, index)
			do(t, end(b, index))
			if list := b.L2FIB.List(NoIndex); len(list) != 0 {
				t.Errorf("left %+v", list)
			}
			if b.engine.Unpublished() {
				t.Error("not published")
			}
		})
	}
}

func TestStaticMACIsDeletedWithItsBridgeAndNotWithItsInterface(t *testing.T) {
	b := newTestModel()
	index := b.bridged(t)
	do(t, b.L2FIB.Add(L2Entry{Bridge: 1, MAC: someMAC, Interface: index, Static: true}))
	do(t, b.Taps.Delete(index))
	if e := b.only(t); e.Interface != index || !e.Static {
		t.Errorf("%+v", e)
	}
	do(t, b.Bridges.Delete(1))
	b.bridged(t)
	if list := b.L2FIB.List(1); len(list) != 0 {
		t.Errorf("the new bridge domain has %+v", list)
	}
}

func TestJoinRemovesInterfaceFromFormerBridge(t *testing.T) {
	b := newTestModel()
	index := b.bridged(t)
	do(t, b.Bridges.Join(Join{Interface: index, Bridge: 2, SplitHorizon: 3}))
	b.engine.Look(func(s modeltest.State) {
		if one, two := s.Bridges[1], s.Bridges[2]; len(one.Members) != 0 || len(two.Members) != 1 ||
			two.Members[0] != (forward.BridgeMember{Interface: index, SplitHorizon: 3}) {
			t.Errorf("%+v %+v", one, two)
		}
	})
	if err := b.Bridges.Delete(2); !errors.Is(err, BDInUse) {
		t.Errorf("deleted with a member: %v", err)
	}
	do(t, b.Bridges.Delete(1))
}

func TestBridgesAreListedByIndexAndIndexesAreReused(t *testing.T) {
	b := newTestModel()
	add := func(id uint32) {
		t.Helper()
		if _, err := b.Bridges.Add(Bridge{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	add(30)
	add(20)
	add(10)
	do(t, b.Bridges.Delete(20))
	add(40)
	for n, want := range []uint32{30, 40, 10} {
		if d := b.Bridges.List(NoIndex)[n]; d.ID != want || d.Index != n+1 {
			t.Errorf("number %d: %+v", n, d)
		}
	}
}

func TestDeletedBVIDeletesOnlyItsOwnL2Entry(t *testing.T) {
	b := newTestModel()
	loop := b.loopback(t)
	do(t, b.Bridges.Join(Join{Interface: loop, Bridge: 1, BVI: true}))
	filter := L2Entry{Bridge: 1, MAC: frame.MAC{6}, Filter: true}
	do(t, b.L2FIB.Add(filter))
	do(t, b.Loopbacks.Delete(loop))
	if e := b.only(t); !e.Filter || e.MAC != filter.MAC {
		t.Errorf("%+v", e)
	}
	if d := b.Bridges.List(1); d[0].BVI != NoIndex || len(d[0].Members) != 0 {
		t.Errorf("%+v", d)
	}
}
