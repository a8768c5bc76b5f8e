package vswitch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
)

const memifSecret memif.Secret = "twenty-three-characters"

// Two memifs and a tap in one bridge domain reach each other, also with frames of several slots.
func TestMemifsAndTapsShareABridgeDomain(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	addBridge(t, conn, 7)
	path := memifSocket(t, conn, 3)
	for id := range uint32(2) {
		index := addMemif(t, conn, binapi.MemifCreateV2{SocketID: 3, ID: id + 1, Secret: string(memifSecret)})
		join(t, conn, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: index, BdID: 7})
	}
	a := runMemifPod(t, memif.ClientConfig{Socket: path, ID: 1, Secret: memifSecret}, "10.0.44.11")
	b := runMemifPod(t, memif.ClientConfig{Socket: path, ID: 2, Secret: memifSecret, BufferSize: 256, RingSize: 64},
		"10.0.44.12")
	c := addBridgedPod(t, conn, bridged{bridge: 7, host: 13, flags: 0})
	for _, size := range []int{1, 1400, 8000} {
		if !a.ping("10.0.44.12", "10.0.44.12", size) || !b.ping("10.0.44.11", "10.0.44.11", size) {
			t.Errorf("%d bytes between memifs", size)
		}
	}
	for _, p := range []*memifPod{a, b} {
		if !p.ping("10.0.44.13", "10.0.44.13", 1400) {
			t.Error("from a memif to a tap")
		}
		ping(t, c, p.own.String()+"/24")
	}
}

// Memifs are routed like taps, with and without Ethernet headers.
func TestMemifsAreRouted(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	path := memifSocket(t, conn, 3)
	c := addPod(t, conn, 1, tapv2.TAP_API_FLAG_GSO)
	for id, mode := range []binapi.MemifMode{binapi.MEMIF_MODE_API_ETHERNET, binapi.MEMIF_MODE_API_IP} {
		p := pod{n: 61 + id, index: addMemif(t, conn, binapi.MemifCreateV2{SocketID: 3, ID: uint32(id), Mode: mode})}
		gateways(t, conn, p)
	}
	a := runMemifPod(t, memif.ClientConfig{Socket: path, ID: 0}, "10.0.61.2")
	b := runMemifPod(t, memif.ClientConfig{Socket: path, ID: 1, Mode: memif.IP, BufferSize: 512}, "10.0.62.2")
	for _, to := range []string{"10.0.61.1", "10.0.62.2", "10.0.1.2"} {
		if !a.ping(to, "10.0.61.1", 1000) {
			t.Error("with Ethernet to", to)
		}
	}
	for _, to := range []string{"10.0.62.1", "10.0.61.2", "10.0.1.2"} {
		if !b.ping(to, "10.0.62.1", 1000) {
			t.Error("without Ethernet to", to)
		}
	}
	ping(t, c, "10.0.61.2/24")
	ping(t, c, "10.0.62.2/24")
}

// Access to the directory gives access to the socket from its creation on; the file is removed with its last memif.
func TestMemifSocketFollowsItsDirectory(t *testing.T) {
	conn := start(t).connect(t)
	for id, c := range []struct{ directory, socket fs.FileMode }{{0o700, 0o600}, {0o750, 0o660}, {0o755, 0o666}} {
		number := uint32(id + 1)
		path := memifSocket(t, conn, number)
		if err := os.Chmod(filepath.Dir(path), c.directory); err != nil {
			t.Fatal(err)
		}
		index := addMemif(t, conn, binapi.MemifCreateV2{SocketID: number})
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.socket {
			t.Errorf("directory %o: %v, %v", c.directory, info.Mode(), err)
		}
		if _, err := binapi.NewServiceClient(conn).MemifDelete(t.Context(), &binapi.MemifDelete{
			SwIfIndex: index,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("directory %o: the socket is still there: %v", c.directory, err)
		}
	}
}

// VPP crashes here (FDio/vpp#1084).
func TestMemifWithoutDirectoryIsRejected(t *testing.T) {
	conn := start(t).connect(t)
	c := binapi.NewServiceClient(conn)
	if _, err := c.MemifSocketFilenameAddDelV2(t.Context(), &binapi.MemifSocketFilenameAddDelV2{
		IsAdd:          true,
		SocketID:       1,
		SocketFilename: filepath.Join(t.TempDir(), "none", "memif.sock"),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.MemifCreateV2(t.Context(), &binapi.MemifCreateV2{SocketID: 1}); !errors.Is(err,
		api.SYSCALL_ERROR_4) {
		t.Errorf("got %v", err)
	}
	if _, err := c.MemifSocketFilenameAddDelV2(t.Context(), &binapi.MemifSocketFilenameAddDelV2{
		SocketID: 1,
	}); err != nil {
		t.Error("delete socket:", err)
	}
}

// A client that restarts, and a client that may not connect.
func TestMemifAcceptsOneClientWithItsSecret(t *testing.T) {
	conn := start(t).connect(t)
	path := memifSocket(t, conn, 3)
	addMemif(t, conn, binapi.MemifCreateV2{SocketID: 3, ID: 1, Secret: string(memifSecret)})
	c := memif.ClientConfig{Socket: path, ID: 1, Secret: memifSecret}
	wrong := c
	wrong.Secret = memifSecret[1:]
	refused := func(config memif.ClientConfig, want string) {
		t.Helper()
		var refusal *memif.DisconnectError
		if _, err := memif.Connect(t.Context(), config); !errors.As(err, &refusal) || refusal.Reason != want {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	refused(wrong, "incorrect secret")
	first, err := memif.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	refused(c, "already connected")
	first.Release()
	eventually(t, func() bool {
		again, err := memif.Connect(t.Context(), c)
		if err == nil {
			again.Release()
		}
		return err == nil
	})
}
