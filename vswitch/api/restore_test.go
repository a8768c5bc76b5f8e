package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Fatalf(format string, args ...any)
}

// dumps returns the answers to all dumps as JSON, without what the packet path learned and without ages.
func dumps(m *model.Model) map[string]string {
	all := map[string]string{}
	add := func(name string, list any) {
		text, err := json.Marshal(list)
		if err != nil {
			text = []byte(err.Error())
		}
		all[name] = strings.ReplaceAll(string(text), "null", "[]")
	}
	const every = model.NoIndex
	ifs := m.Interfaces.List(model.InterfaceFilter{Index: every})
	add("interfaces", ifs)
	for _, f := range []forward.Family{forward.IP4, forward.IP6} {
		neighbours := m.Neighbours.List(every, f)
		for n := range neighbours {
			neighbours[n].Age = 0
		}
		add(fmt.Sprint("neighbours ", f), neighbours)
		add(fmt.Sprint("redirects ", f), m.Punt.Redirects(every, f))
		for _, i := range ifs {
			addresses, _ := m.Addresses.List(i.Index, f)
			table, _ := m.Tables.Of(i.Index, f)
			linkLocal, _ := m.IP6.LinkLocal(i.Index)
			received, _ := m.Policers.IsPoliced(i.Index, model.PoliceInput)
			sent, _ := m.Policers.IsPoliced(i.Index, model.PoliceOutput)
			add(fmt.Sprint("interface ", i.Index, f), []any{addresses, table, linkLocal, received, sent})
		}
	}
	for _, t := range m.Tables.List() {
		add(fmt.Sprint("table ", t.Family, t.ID), []any{t, m.Routes.List(t.TableKey, 0)})
	}
	bridges := m.Bridges.List(every)
	for n := range bridges {
		bridges[n].Learned = 0
	}
	add("bridges", bridges)
	for _, e := range m.L2FIB.List(every) {
		if !e.Learned {
			add(fmt.Sprint("MAC ", e.Bridge, e.MAC), e)
		}
	}
	for name, list := range map[string]any{
		"taps":    m.Taps.List(every),
		"links":   m.AFPackets.List(),
		"sockets": m.MemifSockets.List(),
		"tunnels": m.VXLANs.List(every),
		"ACLs":    m.ACLs.List(every), "input ACLs": m.ACLs.Interfaces(every), "MACIPs": m.MACIPs.List(every),
		"applied MACIPs": m.MACIPs.Applied(every),
		"memifs":         m.Memifs.List(), "unnumbered": m.Addresses.Unnumbered(every), "proxy ARP": m.Proxies.ARPs(),
		"proxy ARP on": m.Proxies.ARPInterfaces(), "proxy ND": m.Proxies.NDs(), "mirrors": m.Spans.List(),
		"policers": m.Policers.List(every),
	} {
		add(name, list)
	}
	return all
}

// restored restores the state of a model into another one, by way of bytes.
func restored(t failer, m *model.Model) (*model.Model, *modeltest.Engine) {
	b, err := m.State().Encode()
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	state, err := model.DecodeState(b)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	passed := &model.Passed{Ports: map[uint32]forward.OpenPort{}}
	for _, i := range m.Interfaces.List(model.InterfaceFilter{Index: model.NoIndex}) {
		passed.Ports[i.Index] = forward.OpenPort{Interface: i.Index} // the fake engine uses no descriptors
	}
	for _, i := range m.Memifs.List() {
		if p := i.Peer; p != nil {
			passed.Ports[i.Index] = forward.OpenPort{
				Interface: i.Index,
				Memif: &memif.Passed{Info: memif.Info{Peer: p.Name,
					PeerInterface: p.Interface,
					RxQueues:      p.RxQueues,
					TxQueues:      p.TxQueues,
					RingSize:      p.RingSize,
					Regions:       p.Regions}},
			}
		}
	}
	engine := modeltest.New()
	other := model.New(engine, slog.New(slog.DiscardHandler))
	if err := other.Restore(state, passed); err != nil {
		t.Fatalf("restore: %v", err)
	}
	return other, engine
}

// checkRestore fails the test unless a model that is restored from m answers all dumps as m does and has configured its
// engine in the same way.
func checkRestore(t failer, m *model.Model, engine *modeltest.Engine) {
	other, restoredEngine := restored(t, m)
	if diff := cmp.Diff(dumps(m), dumps(other)); diff != "" {
		t.Fatalf("dumps before (-) and after (+):\n%s", diff)
	}
	if diff := cmp.Diff(configured(engine), configured(restoredEngine)); diff != "" {
		t.Fatalf("packet path before (-) and after (+):\n%s", diff)
	}
	if restoredEngine.Unpublished() {
		t.Fatalf("the restored state was not published")
	}
}

// configured returns the configuration of an engine but for its ports.
func configured(e *modeltest.Engine) map[string]string {
	all := map[string]string{}
	e.Look(func(s modeltest.State) {
		for k, i := range s.Interfaces {
			filter := []any{
				i.MACIP != nil, len(i.ACL.Input), len(i.ACL.Output), i.ACL.Count, i.PoliceInput != nil,
				i.PoliceOutput != nil,
			}
			redirects, _ := json.Marshal([]any{i.Redirect4, i.Redirect6, i.Tunnel, i.Addresses, i.Sub})
			i.ACL = forward.AccessLists{}
			i.MACIP = nil
			i.PoliceInput = nil
			i.PoliceOutput = nil
			i.Redirect4 = nil
			i.Redirect6 = nil
			i.Sub = nil
			i.Tunnel = nil
			i.Addresses = nil
			all[fmt.Sprint("interface ", k)] = strings.ReplaceAll(fmt.Sprintf("%+v %v %s", i, filter, redirects),
				"null", "[]")
		}
		for k, neighbours := range s.Neighbours {
			for a, n := range neighbours {
				all[fmt.Sprint("neighbour ", k, a)] = fmt.Sprint(n)
			}
		}
		for k, table := range s.Tables {
			all[fmt.Sprint("table ", k)] = ""
			for p, r := range table {
				all[fmt.Sprint("route ", k, p)] = fmt.Sprintf("%+v", r)
			}
		}
		for k, b := range s.Bridges {
			all[fmt.Sprint("bridge ", k)] = fmt.Sprintf("%+v", b)
		}
		for k, sessions := range s.Sessions {
			all[fmt.Sprint("sessions ", k)] = fmt.Sprintf("%+v", sessions)
		}
		all["proxies"] = fmt.Sprintf("%+v", s.Proxies)
	})
	return all
}

// everything returns a model with all kinds of objects.
func everything(t testing.TB) (*model.Model, *modeltest.Engine) {
	t.Helper()
	engine := modeltest.New()
	m := model.New(engine, slog.New(slog.DiscardHandler))
	m.MemifSockets.SetRunDir("/run/weft")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(index uint32, err error) uint32 {
		t.Helper()
		ok(err)
		ok(m.SetAdminUp(index, true))
		return index
	}
	prefix := netip.MustParsePrefix
	addr := netip.MustParseAddr
	vrf := forward.TableKey{Family: forward.IP4, ID: 7}
	m.Tables.Add(vrf, "of a network")
	m.Tables.Add(forward.TableKey{Family: forward.IP6, ID: 7}, "")
	gone := add(m.Loopbacks.Add(model.Loopback{}))
	loop := add(m.Loopbacks.Add(model.Loopback{}))
	tap := add(m.Taps.Add(model.Tap{
		ID:   model.NoIndex,
		Tag:  "tag \xff of a pod",
		Host: model.HostEnd{Name: "eth0", Namespace: "a", IP4: prefix("10.9.0.2/24")},
	}))
	link := add(m.AFPackets.Add(model.AFPacket{HostName: "veth0", Mode: 1, Flags: model.AFPacketOffload}))
	_, err := m.MemifSockets.Add(5, "pod.sock")
	ok(err)
	packets := add(m.Memifs.Add(model.Memif{Socket: 5, ID: 1, Mode: model.MemifIP, Secret: "secret"}))
	frames := add(m.Memifs.Add(model.Memif{Socket: 5, ID: 2, Secret: memif.Secret("other")}))
	double := model.SubTwoTags | model.SubExactMatch | model.SubDot1AD
	pair := add(m.SubInterfaces.Add(model.Sub{Parent: frames, ID: 1, Flags: double, Outer: 500, Inner: 100}))
	ok(m.Bridges.Join(model.Join{Interface: pair, Bridge: 12}))
	ok(m.SubInterfaces.SetTagRewrite(pair, model.TagRewritePop2))
	add(m.SubInterfaces.AddVLAN(link, 100))
	ok(m.Tables.Set(link, vrf))
	ok(m.Addresses.Add(loop, prefix("10.0.0.1/24")))
	ok(m.Addresses.Add(loop, prefix("10.0.0.2/24")))
	ok(m.Addresses.Add(loop, prefix("fd00::1/64")))
	ok(m.IP6.Enable(frames))
	ok(m.Addresses.Add(gone, prefix("10.7.0.1/31")))
	ok(m.Addresses.SetUnnumbered(tap, loop))
	ok(m.Neighbours.Add(model.Neighbour{Index: tap, Addr: addr("10.0.0.5"), MAC: frame.MAC{2, 1}, Static: true}))
	ok(m.Neighbours.Add(model.Neighbour{Index: loop, Addr: addr("fd00::5"), MAC: frame.MAC{2, 2}}))
	ok(m.Neighbours.Add(model.Neighbour{Index: loop, Addr: addr("10.0.0.6"), MAC: frame.MAC{2, 3}, NoRoute: true}))
	_, err = m.VXLANs.Add(model.VXLAN{
		Instance:    model.NoIndex,
		Source:      addr("10.0.0.1"),
		Destination: addr("192.0.2.1"),
		VRF:         7,
		VNI:         9,
		DecapNext:   model.NoIndex,
	})
	ok(err)
	for p, paths := range map[string][]model.Path{
		"10.1.0.0/16": {{Interface: tap, NextHop: addr("10.0.0.5")}, {Interface: loop, Preference: 1}},
		"10.2.0.9/16": {{Interface: model.NoIndex, Table: 7}},
		"10.3.0.0/16": {{Interface: gone}},
		"10.4.0.0/16": {{Kind: model.PathProhibit, Interface: model.NoIndex}},
	} {
		_, err := m.Routes.Add(model.RouteChange{
			Table:  forward.TableKey{Family: forward.IP4},
			Prefix: prefix(p),
			Paths:  paths,
		})
		ok(err)
	}
	engine.RestoreSessions(tap, []forward.Session{
		{
			Opener:     addr("10.0.0.5"),
			Peer:       addr("192.0.2.7"),
			OpenerPort: 4000,
			PeerPort:   443,
			Protocol:   6,
			Output:     true,
			State:      3,
			Idle:       time.Minute,
		},
	})
	addFeatures(t, m, features{tap: tap, packets: packets, frames: frames, loop: loop, gone: gone})
	ok(m.Loopbacks.Delete(gone))
	return m, engine
}

// features are the interfaces of everything that get ACLs, bridge domains, proxies and redirects.
type features struct{ tap, packets, frames, loop, gone uint32 }

func addFeatures(t testing.TB, m *model.Model, on features) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	prefix := netip.MustParsePrefix
	addr := netip.MustParseAddr
	rule := forward.ACLRule{
		Permit:       true,
		Source:       prefix("10.0.0.0/8"),
		Destination:  prefix("0.0.0.0/0"),
		Protocol:     6,
		Destinations: forward.PortRange{First: 80, Last: 80},
	}
	first, err := m.ACLs.Add(model.IPACL{Tag: "first", Rules: []forward.ACLRule{rule}})
	ok(err)
	ok(m.ACLs.Delete(first))
	first, err = m.ACLs.Add(model.IPACL{Tag: "first", Rules: []forward.ACLRule{rule}})
	ok(err)
	second, err := m.ACLs.Add(model.IPACL{Tag: "second", Rules: []forward.ACLRule{rule, rule}})
	ok(err)
	m.ACLs.Count(true)
	ok(m.ACLs.SetInterface(on.tap, model.ACLLists{Input: []uint32{second, first}, Output: []uint32{first}}))
	macip, err := m.MACIPs.Add(model.MACIPACL{
		Tag:   "macs",
		Rules: []forward.MACIPRule{{Permit: true, MAC: frame.MAC{2}, Prefix: prefix("10.0.0.5/32")}},
	})
	ok(err)
	ok(m.MACIPs.Apply(on.tap, macip))
	_, err = m.Bridges.Add(model.Bridge{ID: 3, Flags: model.BridgeLearn | model.BridgeForward, Age: 5, Tag: "network"})
	ok(err)
	bvi, err := m.Loopbacks.Add(model.Loopback{Specified: true, Instance: 9})
	ok(err)
	ok(m.SetAdminUp(bvi, true))
	ok(m.Bridges.Join(model.Join{Interface: on.frames, Bridge: 3, SplitHorizon: 2}))
	ok(m.Bridges.Join(model.Join{Interface: bvi, Bridge: 3, BVI: true}))
	ok(m.L2FIB.Add(model.L2Entry{Bridge: 3, MAC: frame.MAC{4}, Filter: true}))
	ok(m.L2FIB.Add(model.L2Entry{Bridge: 3, MAC: frame.MAC{6}, Interface: on.frames}))
	ok(m.Proxies.AddARP(forward.ProxyRange{Low: addr("10.8.0.1"), High: addr("10.8.0.9")}))
	ok(m.Proxies.SetARP(on.tap, true))
	ok(m.Proxies.AddND(on.packets, addr("fd00::77")))
	ok(m.Punt.SetRedirect(on.tap, forward.IP4, []model.Path{{Interface: on.gone}}))
	ok(m.Punt.SetRedirect(model.NoIndex, forward.IP6, []model.Path{{Interface: on.loop, NextHop: addr("fd00::9")}}))
	ok(m.Spans.Set(model.Span{From: on.frames, To: on.tap, State: model.SpanRx}))
	m.Punt.SetUDP(forward.IP4, true)
	policer := model.Policer{Name: "blue", Rate: 1000, Burst: 80_000, Conform: model.PolicerAction{Type: 2, DSCP: 46}}
	blue, err := m.Policers.Add(policer)
	ok(err)
	ok(m.Policers.Apply(on.tap, blue, model.PoliceInput, true))
	policer.Name = "red"
	policer.Conform = model.PolicerAction{Type: 1}
	red, err := m.Policers.Add(policer)
	ok(err)
	ok(m.Policers.Apply(on.frames, red, model.PoliceOutput, true))
}

func TestRestoredStateAnswersAllDumpsAlike(t *testing.T) {
	m, engine := everything(t)
	checkRestore(t, m, engine)
}

func TestRestoredStateCanBeDeleted(t *testing.T) {
	m, _ := everything(t)
	other, engine := restored(t, m)
	emptyEngine := modeltest.New()
	model.New(emptyEngine, slog.New(slog.DiscardHandler))
	for _, one := range []*model.Model{m, other} {
		wipe(t, one)
	}
	if diff := cmp.Diff(dumps(m), dumps(other)); diff != "" {
		t.Errorf("dumps after the deletion of the original (-) and the restored (+):\n%s", diff)
	}
	if diff := cmp.Diff(configured(emptyEngine), configured(engine)); diff != "" {
		t.Errorf("a packet path without configuration (-) and the restored one (+):\n%s", diff)
	}
}

// wipe deletes all objects of everything.
func wipe(t *testing.T, m *model.Model) {
	t.Helper()
	for _, r := range m.Routes.List(forward.TableKey{Family: forward.IP4}, model.SourceAPI) {
		if err := m.Routes.Delete(model.RouteChange{
			Table:  forward.TableKey{Family: forward.IP4},
			Prefix: r.Prefix,
		}); err != nil {
			t.Error(err)
		}
	}
	for _, v := range m.VXLANs.List(model.NoIndex) {
		if _, err := m.VXLANs.Delete(v.VXLAN); err != nil {
			t.Error(err)
		}
	}
	for _, i := range m.Interfaces.List(model.InterfaceFilter{Index: model.NoIndex}) {
		_ = m.Taps.Delete(i.Index)
		_ = m.Memifs.Delete(i.Index)
		_ = m.Loopbacks.Delete(i.Index)
	}
	for _, p := range m.AFPackets.List() {
		if err := m.AFPackets.Delete(p.HostName); err != nil {
			t.Error(err)
		}
	}
	for _, b := range m.Bridges.List(model.NoIndex) {
		if err := m.Bridges.Delete(b.ID); err != nil {
			t.Error(err)
		}
	}
	for _, r := range m.Proxies.ARPs() {
		if err := m.Proxies.DeleteARP(r); err != nil {
			t.Error(err)
		}
	}
	for range m.Policers.List(model.NoIndex) {
		for index := range uint32(2) {
			_ = m.Policers.Delete(index)
		}
	}
	m.ACLs.Count(false)
	m.Punt.DeleteRedirect(model.NoIndex, forward.IP6)
	for _, table := range m.Tables.List() {
		m.Tables.Delete(table.TableKey)
	}
}

// FuzzRestore restores any bytes: the result is an error, or a model whose state can be restored and deleted.
func FuzzRestore(f *testing.F) {
	m, _ := everything(f)
	b, err := m.State().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		state, err := model.DecodeState(b)
		if err != nil {
			return
		}
		m := model.New(modeltest.New(), slog.New(slog.DiscardHandler))
		if err := m.Restore(state, &model.Passed{}); err != nil {
			return
		}
		dumps(m)
		for _, i := range m.Interfaces.List(model.InterfaceFilter{Index: model.NoIndex}) {
			_ = m.SetAdminUp(i.Index, !i.AdminUp)
			_ = m.Taps.Delete(i.Index)
			_ = m.Memifs.Delete(i.Index)
			_ = m.Loopbacks.Delete(i.Index)
		}
	})
}
