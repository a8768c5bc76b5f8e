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

// bench is a model over an engine that remembers, with the events that it told.
type bench struct {
	*Model
	engine *modeltest.Engine
	events []InterfaceEvent
}

func newBench() *bench {
	b := &bench{engine: modeltest.New()}
	b.Model = New(b.engine, slog.New(slog.DiscardHandler))
	b.Notify(func(e InterfaceEvent) { b.events = append(b.events, e) })
	return b
}

// tap makes one that is up.
func (b *bench) tap(t *testing.T) uint32 {
	t.Helper()
	index, err := b.AddTap(Tap{ID: NoIndex})
	if err != nil {
		t.Fatal(err)
	}
	do(t, b.SetAdminUp(index, true))
	return index
}

// loopback makes one that is up, with addresses.
func (b *bench) loopback(t *testing.T, addresses ...string) uint32 {
	t.Helper()
	index, err := b.AddLoopback(Loopback{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, b.SetAdminUp(index, true))
	for _, a := range addresses {
		do(t, b.AddAddress(index, netip.MustParsePrefix(a)))
	}
	return index
}

func (b *bench) route(t *testing.T, prefix string, paths ...Path) {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	if _, err := b.AddRoute(RouteChange{Table: forward.TableKey{Family: forward.FamilyOf(p.Addr())}, Prefix: p, Paths: paths}); err != nil {
		t.Fatal(err)
	}
}

// forwarded is what the engine has for a prefix of an IPv4 table.
func (b *bench) forwarded(table uint32, prefix string) (route forward.Route, ok bool) {
	b.engine.Look(func(s modeltest.State) {
		route, ok = s.Tables[forward.TableKey{Family: forward.IP4, ID: table}][netip.MustParsePrefix(prefix)]
	})
	return route, ok
}

// over are the interfaces that a route's paths lead over.
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
