package api

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model/modeltest"
	"github.com/weftnet/weft/vswitch/port"
)

func (a *testClient) memifs() binapi.RPCService { return binapi.NewServiceClient(a.conn) }

func (a *testClient) socket(t testingT, id uint32, path string) (uint32, error) {
	t.Helper()
	reply, err := invoke(t, a, a.memifs().MemifSocketFilenameAddDelV2,
		&binapi.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: id, SocketFilename: path})
	return reply.SocketID, err
}

func (a *testClient) deleteSocket(t testingT, id uint32) error {
	t.Helper()
	_, err := invoke(t, a, a.memifs().MemifSocketFilenameAddDelV2, &binapi.MemifSocketFilenameAddDelV2{SocketID: id})
	return err
}

func (a *testClient) memif(t testingT, c binapi.MemifCreateV2) (interface_types.InterfaceIndex, error) {
	t.Helper()
	reply, err := invoke(t, a, a.memifs().MemifCreateV2, &c)
	return reply.SwIfIndex, err
}

func (a *testClient) deleteMemif(t testingT, index interface_types.InterfaceIndex) error {
	t.Helper()
	_, err := invoke(t, a, a.memifs().MemifDelete, &binapi.MemifDelete{SwIfIndex: index})
	return err
}

func (a *testClient) sockets(t testingT) []binapi.MemifSocketFilenameDetails {
	t.Helper()
	s, err := a.memifs().MemifSocketFilenameDump(a.context, &binapi.MemifSocketFilenameDump{})
	var list []binapi.MemifSocketFilenameDetails
	for _, d := range collect[*binapi.MemifSocketFilenameDetails](t, s, err) {
		list = append(list, *d)
	}
	return list
}

func (a *testClient) memifDetails(t testingT) []binapi.MemifDetails {
	t.Helper()
	s, err := a.memifs().MemifDump(a.context, &binapi.MemifDump{})
	var list []binapi.MemifDetails
	for _, d := range collect[*binapi.MemifDetails](t, s, err) {
		list = append(list, *d)
	}
	return list
}

func TestMemifCreateAndDelete(t *testing.T) {
	r := start(t, Limits{})
	r.model.MemifSockets.SetRunDir("/run/here")
	a := newTestClient(t.Context(), r.connect(t))
	if id, err := a.socket(t, 5, "/run/pod/memif.sock"); err != nil || id != 5 {
		t.Fatal(id, err)
	}
	mac := ethernet_types.MacAddress{2, 1, 2, 3, 4, 5}
	one, err := a.memif(t, binapi.MemifCreateV2{
		SocketID:   5,
		ID:         1,
		HwAddr:     mac,
		Secret:     strings.Repeat("s", 24),
		RingSize:   2048,
		BufferSize: 9000,
		RxQueues:   2,
		TxQueues:   3,
	})
	if err != nil {
		t.Fatal(err)
	}
	two, err := a.memif(t, binapi.MemifCreateV2{SocketID: 5, ID: 2, Mode: binapi.MEMIF_MODE_API_IP})
	if err != nil {
		t.Fatal(err)
	}
	r.engine.Look(func(s modeltest.State) {
		want := port.MemifConfig{
			Socket:   "/run/pod/memif.sock",
			ID:       1,
			Secret:   memif.Secret(strings.Repeat("s", 23)),
			Name:     "memif5/1",
			RxQueues: 2, TxQueues: 3, RingSize: 2048,
		}
		if c := s.Memifs[uint32(one)]; c != want {
			t.Errorf("first: %+v", c)
		}
		if c := s.Memifs[uint32(two)]; !c.Bare || c.Secret != "" || s.Interfaces[uint32(two)].Bare != c.Bare {
			t.Errorf("second: %+v, %+v", c, s.Interfaces[uint32(two)])
		}
	})
	want := []binapi.MemifDetails{
		{SwIfIndex: one, HwAddr: mac, ID: 1, SocketID: 5, RingSize: 1, IfName: "memif5/1"},
		{SwIfIndex: two, ID: 2, SocketID: 5, RingSize: 1, IfName: "memif5/2", Mode: binapi.MEMIF_MODE_API_IP},
	}
	if got := a.memifDetails(t); !slices.Equal(got, want) {
		t.Errorf("dump %+v", got)
	}
	list := a.interfaces(t)
	if i := list[len(list)-2]; i.InterfaceName != "memif5/1" || i.InterfaceDevType != "memif" || i.L2Address != mac ||
		i.Mtu[0] != 9000 || i.Flags != 0 {
		t.Errorf("interface %+v", i)
	}
	if i := list[len(list)-1]; i.L2Address != (ethernet_types.MacAddress{}) || i.Mtu[0] != 0 || i.LinkMtu != 0 {
		t.Errorf("interface without Ethernet %+v", i)
	}
	if err := a.deleteMemif(t, one); err != nil {
		t.Fatal(err)
	}
	if got := a.memifDetails(t); !slices.Equal(got, want[1:]) {
		t.Errorf("dump after delete %+v", got)
	}
	r.engine.Look(func(s modeltest.State) {
		if len(s.Memifs) != 1 {
			t.Errorf("left %+v", s.Memifs)
		}
	})
}

func TestMemifSocketIDs(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	if _, err := a.socket(t, 1, "relative"); !errors.Is(err, api.SYSCALL_ERROR_1) {
		t.Errorf("a relative name without a run directory: %v", err)
	}
	r.model.MemifSockets.SetRunDir("/run/here")
	chosen, err := a.socket(t, ^uint32(0), "/run/any.sock")
	if err != nil || chosen == 0 || chosen == ^uint32(0) {
		t.Fatal(chosen, err)
	}
	if _, err := a.socket(t, 4, "below/x.sock"); err != nil {
		t.Fatal(err)
	}
	got := a.sockets(t)
	for _, want := range []binapi.MemifSocketFilenameDetails{{SocketFilename: "/run/here/memif.sock"},
		{SocketID: 4, SocketFilename: "/run/here/below/x.sock"}, {SocketID: chosen, SocketFilename: "/run/any.sock"}} {
		if !slices.Contains(got, want) {
			t.Errorf("%+v is not in %+v", want, got)
		}
	}
	if err := a.deleteSocket(t, chosen); err != nil {
		t.Fatal(err)
	}
	if left := a.sockets(t); len(left) != 2 {
		t.Errorf("left %+v", left)
	}
}

// bridgeBareMemif creates a memif in mode IP and returns the error of adding it to a bridge domain.
func (a *testClient) bridgeBareMemif(t testingT, socket uint32) error {
	t.Helper()
	index, err := a.memif(t, binapi.MemifCreateV2{SocketID: socket, Mode: binapi.MEMIF_MODE_API_IP})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	_, err = invoke(t, a, l2.NewServiceClient(a.conn).SwInterfaceSetL2Bridge, &l2.SwInterfaceSetL2Bridge{
		RxSwIfIndex: index,
		BdID:        1,
		Enable:      true,
	})
	return err
}

// The retvals are those of VPP 25.10: memif_socket_filename_add_del, memif_create_if and the handler of memif_delete.
func TestMemifRetvals(t *testing.T) {
	r := start(t, Limits{})
	r.model.MemifSockets.SetRunDir("/run/here")
	a := newTestClient(t.Context(), r.connect(t))
	for id, path := range map[uint32]string{
		1: "/run/one.sock",
		2: "/run/two.sock",
		3: "/run/one.sock",
		4: "/run/four.sock",
	} {
		if _, err := a.socket(t, id, path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.memif(t, binapi.MemifCreateV2{SocketID: 1, ID: 7}); err != nil {
		t.Fatal(err)
	}
	create := func(c binapi.MemifCreateV2) func() error {
		return func() error {
			index, err := a.memif(t, c)
			if index != 0 {
				t.Errorf("index %d", index)
			}
			return err
		}
	}
	add := func(id uint32, path string) func() error {
		return func() error {
			_, err := a.socket(t, id, path)
			return err
		}
	}
	slave := binapi.MEMIF_ROLE_API_SLAVE
	checkRefusals(t, map[string]refusal{
		"socket 0 cannot be added":   {add(0, "/run/x.sock"), api.INVALID_ARGUMENT},
		"a socket without a name":    {add(9, ""), api.INVALID_ARGUMENT},
		"an abstract socket":         {add(9, "abstract:x"), api.UNSUPPORTED},
		"an id with another path":    {add(1, "/run/x.sock"), api.ENTRY_ALREADY_EXISTS},
		"the same id and path again": {add(1, "/run/one.sock"), nil},
		"an unknown socket is not deleted": {
			func() error { return a.deleteSocket(t, 99) }, api.INVALID_ARGUMENT,
		},
		"socket 0 is not deleted": {
			func() error { return a.deleteSocket(t, 0) }, api.INVALID_ARGUMENT,
		},
		"a socket in use is not deleted": {
			func() error { return a.deleteSocket(t, 1) }, api.UNEXPECTED_INTF_STATE,
		},
		"a ring size that is not a power of two": {
			create(binapi.MemifCreateV2{SocketID: 1, ID: 8, RingSize: 1000}), api.INVALID_ARGUMENT,
		},
		"a memif on an unknown socket": {
			create(binapi.MemifCreateV2{SocketID: 99}), api.INVALID_ARGUMENT,
		},
		"an id in use": {
			create(binapi.MemifCreateV2{SocketID: 1, ID: 7}), api.SUBIF_ALREADY_EXISTS,
		},
		"a slave on a master's socket": {
			create(binapi.MemifCreateV2{SocketID: 1, ID: 8, Role: slave}), api.SUBIF_ALREADY_EXISTS,
		},
		"a slave": {
			create(binapi.MemifCreateV2{SocketID: 2, Role: slave}), api.UNSUPPORTED,
		},
		"mode punt": {
			create(binapi.MemifCreateV2{SocketID: 2, Mode: 2}), api.SYSCALL_ERROR_2,
		},
		"a path with memifs of another socket id": {
			create(binapi.MemifCreateV2{SocketID: 3}), api.SYSCALL_ERROR_4,
		},
		"an unknown memif is not deleted": {
			func() error { return a.deleteMemif(t, unknown) }, api.INVALID_SW_IF_INDEX,
		},
		"a loopback is not deleted as memif": {
			func() error { return a.deleteMemif(t, a.loopback(t)) }, api.INVALID_SW_IF_INDEX,
		},
		"a memif in mode IP cannot be a bridge member": {
			func() error { return a.bridgeBareMemif(t, 4) }, api.NON_ETHERNET,
		},
	})
	r.engine.FailPorts(errors.New("no such directory"))
	checkRefusals(t, map[string]refusal{
		"a socket that cannot be bound": {create(binapi.MemifCreateV2{SocketID: 1, ID: 8}), api.SYSCALL_ERROR_4},
	})
	r.engine.FailPorts(nil)
	if index, err := a.memif(t, binapi.MemifCreateV2{SocketID: 1, ID: 8}); err != nil {
		t.Error("the rejected memif left state:", err)
	} else if err := a.deleteMemif(t, index); err != nil {
		t.Error(err)
	}
}

// The link is up while a client is connected, even while the interface is admin down. Setting the interface down sets
// the link down, and setting it up sets the link up again.
func TestMemifLinkFollowsItsClient(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	if _, err := a.socket(t, 1, "/run/one.sock"); err != nil {
		t.Fatal(err)
	}
	index, err := a.memif(t, binapi.MemifCreateV2{SocketID: 1, ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	events, err := a.conn.WatchEvent(t.Context(), &interfaces.SwInterfaceEvent{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	mustInvoke(t, a, a.ifs.WantInterfaceEvents, &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 1})
	const (
		up   = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
		link = interface_types.IF_STATUS_API_FLAG_LINK_UP
	)
	client := func(kind forward.EventKind) func() {
		return func() {
			r.model.Handle(forward.Event{
				Kind:      kind,
				Interface: uint32(index),
				Peer:      &port.MemifPeer{Name: "pod", RingSize: 512},
			})
		}
	}
	for _, step := range []struct {
		what        string
		do          func()
		event, flag interface_types.IfStatusFlags
	}{
		{"client connects while interface is down", client(forward.PeerConnected), link, link},
		{"interface is set up", func() { a.setUp(t, index, true) }, up, up | link},
		{"client disconnects", client(forward.PeerGone), 0, up},
		{"another client connects", client(forward.PeerConnected), link, up | link},
		{"interface is set down", func() { a.setUp(t, index, false) }, 0, 0},
		{"interface is set up again", func() { a.setUp(t, index, true) }, up | link, up | link},
	} {
		step.do()
		e := (<-events.Events()).(*interfaces.SwInterfaceEvent)
		if got := a.memifDetails(t)[0].Flags; e.Flags != step.event || got != step.flag {
			t.Errorf("%s: event %v, then %v", step.what, e.Flags, got)
		}
	}
	shown := command(r.model, "show memif")
	for _, want := range []string{
		"  1   yes       /run/one.sock", "interface memif1/7", `remote-name "pod"`, "flags admin-up connected",
		"ring-size 512",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, shown)
		}
	}
}

func TestMemifSocketPathLongerThanItsMessageClosesTheConnection(t *testing.T) {
	r := start(t, Limits{})
	c := r.register(t)
	good := r.register(t)
	m := c.request(r.Server,
		&binapi.MemifSocketFilenameAddDelV2{
			IsAdd:          true,
			SocketID:       1,
			SocketFilename: filepath.Join("/run", strings.Repeat("x", 40)),
		},
		1)
	m[requestHeader+5] = 0x7f // two billion bytes of path
	c.sendFrame(t, m)
	if !c.closed() {
		t.Error("the connection is still open")
	}
	if !good.answers(t, r.Server) {
		t.Error("another connection was affected")
	}
}
