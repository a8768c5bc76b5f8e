package memif_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"go.fd.io/govpp"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
)

// drifted is the error code of a CHECK that finds drift.
const drifted = 105

// Drift is only reported, so that nothing is repaired before CHECK.
func TestCHECKNamesDriftOfAMemifAndAResyncRepairsIt(t *testing.T) {
	g := newGranted(t, nil)
	g.try(g.KillAgent())
	g.try(g.StartAgent(t.Context(), "--drift=report"))
	g.registered()
	m1 := g.addAndCheck(g.pod)
	file := func(name string) string { return inDirectory(g.vnf, name) }
	for _, tt := range []struct {
		name   string
		change func() error
		named  string
	}{
		{"socket deleted", func() error { return os.Remove(file("memif.sock")) }, file("memif.sock")},
		{"socket's mode changed", func() error { return os.Chmod(file("memif.sock"), 0o600) }, file("memif.sock")},
		{
			"directory's mode changed", func() error { return os.Chmod(directory(g.vnf), 0o700) },
			"linux.file/" + directory(g.vnf),
		},
		{
			"list changed", func() error { return os.WriteFile(file("interfaces.json"), []byte("{}"), 0o444) },
			file("interfaces.json"),
		},
		{"list deleted", func() error { return os.Remove(file("interfaces.json")) }, file("interfaces.json")},
		{"secret changed", func() error { return os.WriteFile(file("secret"), []byte("open"), 0o444) }, file("secret")},
		{"interface deleted", g.deleteMemif, "vpp.interface/weft-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &granted{&lab{t, g.Node, g.runtime}, g.asker, g.pod, g.vnf}
			g.try(tt.change())
			err := g.runtime.Check(t.Context(), g.pod)
			output, ok := errors.AsType[*types.Error](err)
			if !ok || output.Code != drifted || !strings.Contains(output.Error(), tt.named) ||
				!strings.Contains(output.Error(), "demo/d") {
				t.Errorf("CHECK returned %v, want code %d, the pod, and %s", err, drifted, tt.named)
			}
			if ok && strings.Contains(output.Error(), g.vnf.Envs["MEMIF_SECRET"]) {
				t.Error("the error of CHECK contains the secret")
			}
			_, err = g.Weftctl(t.Context(), "resync", "downstream")
			g.try(err)
			g.works(g.pod, m1)
		})
	}
}

// Each change waits for the repair of the previous one: an interface's index is valid only while the agent repairs
// nothing.
func TestAuditRepairsAMemif(t *testing.T) {
	g := newGranted(t, nil)
	g.try(g.KillAgent())
	g.try(g.StartAgent(t.Context(), "--audit=1s"))
	g.registered()
	m1 := g.addAndCheck(g.pod)
	for _, tt := range []struct {
		name   string
		change func() error
	}{
		{"socket deleted", func() error { return os.Remove(m1.SocketPath) }},
		{
			"list changed",
			func() error { return os.WriteFile(inDirectory(g.vnf, "interfaces.json"), []byte("{}"), 0o444) },
		},
		{"interface deleted", g.deleteMemif},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &granted{&lab{t, g.Node, g.runtime}, g.asker, g.pod, g.vnf}
			g.try(tt.change())
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for over := time.Now().Add(time.Minute); g.runtime.Check(t.Context(), g.pod) != nil &&
				time.Now().Before(over); {
				<-tick.C
			}
			g.works(g.pod, m1)
		})
	}
}

// deleteMemif deletes the dataplane's only memif.
func (g *granted) deleteMemif() error {
	conn, err := govpp.Connect(g.DataplaneSocket())
	if err != nil {
		return err
	}
	defer conn.Disconnect()
	rpc := memif.NewServiceClient(conn)
	stream, err := rpc.MemifDump(g.Context(), &memif.MemifDump{})
	if err != nil {
		return err
	}
	index := ^interface_types.InterfaceIndex(0)
	for {
		m, err := stream.Recv()
		if err != nil {
			break // the end
		}
		index = m.SwIfIndex
	}
	_, err = rpc.MemifDelete(g.Context(), &memif.MemifDelete{SwIfIndex: index})
	return err
}
