package vswitch

import (
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestDumpsShowLearnedNeighboursAndCounters(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	a := addPod(t, conn, 1, 0)
	b := addPod(t, conn, 2, 0)
	ping(t, a, b.prefix4(2))
	want := netip.MustParsePrefix(b.prefix4(2)).Addr().String()
	eventually(t, func() bool {
		s, err := ip_neighbor.NewServiceClient(conn).IPNeighborDump(t.Context(), &ip_neighbor.IPNeighborDump{
			SwIfIndex: b.index,
		})
		if err != nil {
			t.Fatal(err)
		}
		learned := false
		for d, err := s.Recv(); err == nil; d, err = s.Recv() {
			learned = learned ||
				d.Neighbor.IPAddress.String() == want && d.Neighbor.Flags == ip_neighbor.IP_API_NEIGHBOR_FLAG_NONE
		}
		return learned
	})
	cli := vlib.NewServiceClient(conn)
	for command, want := range map[string]string{
		"show interface":    "rx packets",
		"show ip fib":       want + "/32 src:adjacency",
		"show ip neighbors": want,
	} {
		reply, err := cli.CliInband(t.Context(), &vlib.CliInband{Cmd: command})
		if err != nil || !strings.Contains(reply.Reply, want) {
			t.Errorf("%s: %v, no %q in\n%s", command, err, want, reply.Reply)
		}
	}
}
