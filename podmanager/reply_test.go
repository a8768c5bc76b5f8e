package podmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

var update = flag.Bool("update", false, "write the golden files")

// TestReplyOfAnAttachment compares the reply for a pod with a dual-stack tap, a veth and a memif with the golden file.
func TestReplyOfAnAttachment(t *testing.T) {
	reply := replyOf(&pod.Attachment{
		Netns: pod.Netns{Path: "/run/netns/a"},
		Interfaces: []pod.Interface{{
			Name: "eth0", Type: "tap", MAC: netaddr.MAC{2, 0xfe, 0, 0, 0, 1}, MTU: 1450,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.5/32"), netip.MustParsePrefix("fd00::5/128")},
			Gateways:  []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")},
			Routes: []pod.Route{
				{Destination: netip.MustParsePrefix("169.254.1.1/32")},
				{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("169.254.1.1")},
			},
		}, {
			Name: "veth1", Type: "veth", MAC: netaddr.MAC{2, 0xfe, 0, 0, 0, 2}, MTU: 1400,
		}, {
			Name:      "memif1",
			Type:      "memif",
			MTU:       2048,
			Routes:    []pod.Route{{Destination: netip.MustParsePrefix("10.3.0.0/24")}},
			Memif:     &pod.Memif{SocketPath: "/run/weft/memif/a/memif.sock"},
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.2.0.1/24")}, Gateways: []netip.Addr{{}},
		}},
	})
	b, err := protojson.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer // protojson randomises its white space
	if err := json.Indent(&got, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/reply.golden.json"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got.String() != string(want) {
		t.Errorf("reply is\n%s\nwant (%v)\n%s", got.String(), err, want)
	}
}

// The routes of another IPAM plugin are those of the main interface, whatever gateways the extra interfaces have.
func TestRoutesOfAnIPAMPluginGetTheGatewayOfTheMainInterface(t *testing.T) {
	prefix := netip.MustParsePrefix
	address := netip.MustParseAddr
	reply := replyOf(&pod.Attachment{
		Netns: pod.Netns{Path: "/run/netns/a"},
		Interfaces: []pod.Interface{
			{
				Name:      "eth0",
				Addresses: []netip.Prefix{prefix("10.1.1.5/32")},
				Gateways:  []netip.Addr{address("169.254.1.1")},
			},
			{Name: "net1", Addresses: []netip.Prefix{prefix("fd00::5/64")}, Gateways: []netip.Addr{address("fd00::1")}},
		},
		Delegation: pod.Delegation{Routes: []pod.Route{
			{Destination: prefix("10.9.0.0/16"), Gateway: address("10.1.1.1")}, {
				Destination: prefix("fd09::/48"),
				Gateway:     address("fd08::1"),
			},
			{Destination: prefix("10.9.0.0/16"), Gateway: address("10.1.1.2")}, // a destination has one route
		}},
	})
	got := map[string]string{}
	for _, r := range reply.GetRoutes() {
		got[r.GetDestination()] = r.GetGateway()
	}
	if want := map[string]string{"10.9.0.0/16": "169.254.1.1", "fd09::/48": ""}; !maps.Equal(got, want) ||
		len(reply.GetRoutes()) != len(want) {
		t.Errorf("routes with their gateways: %v, want %v", reply.GetRoutes(), want)
	}
}

// The codes say whether the runtime can help itself by trying again.
func TestErrorsOfTheLoopHaveCodes(t *testing.T) {
	refused := &eventloop.Record{}
	refused.Steps = []eventloop.Step{{Name: "commit", Err: "refused"}}
	for _, tt := range []struct {
		err  error
		rec  *eventloop.Record
		want uint
	}{
		{eventloop.ErrQueueFull, nil, pod.CodeTryAgain},
		{eventloop.ErrCancelled, nil, pod.CodeTryAgain},
		{eventloop.ErrNotReady, nil, pod.CodeTryAgain},
		{eventloop.ErrStopped, nil, pod.CodeTryAgain},
		{eventloop.ErrNotSaved, refused, pod.CodeIO},
		{context.DeadlineExceeded, refused, pod.CodeTimeout},
		{context.Canceled, nil, pod.CodeTimeout},
		{errors.New("refused"), refused, pod.CodeRefused},
		{errors.New("a defect"), &eventloop.Record{}, codeInternal},
		{errors.New("a defect"), nil, codeInternal},
	} {
		if got := codeOf(fmt.Errorf("add pod: %w", tt.err), tt.rec); got != tt.want {
			t.Errorf("%v with record %v: code %d, want %d", tt.err, tt.rec != nil, got, tt.want)
		}
	}
}
