package model

import (
	"log/slog"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testModel is a model on a fake engine. It records the interface events.
type testModel struct {
	*Model
	engine *modeltest.Engine
	events []InterfaceEvent
}

func newTestModel() *testModel {
	b := &testModel{engine: modeltest.New()}
	b.Model = New(b.engine, slog.New(slog.DiscardHandler))
	b.Interfaces.Notify(func(e InterfaceEvent) { b.events = append(b.events, e) })
	return b
}

// tap creates a tap and sets it up.
func (b *testModel) tap(t *testing.T) uint32 {
	t.Helper()
	index, err := b.Taps.Add(Tap{ID: NoIndex})
	if err != nil {
		t.Fatal(err)
	}
	do(t, b.SetAdminUp(index, true))
	return index
}

// loopback creates a loopback with addresses and sets it up.
func (b *testModel) loopback(t *testing.T, addresses ...string) uint32 {
	t.Helper()
	index, err := b.Loopbacks.Add(Loopback{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, b.SetAdminUp(index, true))
	for _, a := range addresses {
		do(t, b.Addresses.Add(index, netip.MustParsePrefix(a)))
	}
	return index
}

func (b *testModel) route(t *testing.T, prefix string, paths ...Path) {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	if _, err := b.Routes.Add(RouteChange{
		Table:  forward.TableKey{Family: forward.FamilyOf(p.Addr())},
		Prefix: p,
		Paths:  paths,
	}); err != nil {
		t.Fatal(err)
	}
}

// forwarded returns the engine's route to a prefix of an IPv4 table.
func (b *testModel) forwarded(table uint32, prefix string) (route forward.Route, ok bool) {
	b.engine.Look(func(s modeltest.State) {
		route, ok = s.Tables[forward.TableKey{Family: forward.IP4, ID: table}][netip.MustParsePrefix(prefix)]
	})
	return route, ok
}

// over returns the interfaces of a route's paths.
func over(r forward.Route) []uint32 {
	var list []uint32
	for _, p := range r.Paths {
		list = append(list, p.Interface)
	}
	return list
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var someMAC = frame.MAC{2, 0, 0, 0, 0, 7}
