package packets

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// tracesOfVPP are traces in VPP's format, as its documentation shows them, with their summaries and outcomes.
var tracesOfVPP = []struct{ name, text, summary, outcome string }{
	{"a routed echo request", `00:17:04:099260: af-packet-input
  af_packet: hw_if_index 1 next-index 4
    tpacket2_hdr:
      status 0x20000001 len 98 snaplen 98 mac 66 net 80
00:17:04:099269: ethernet-input
  frame: flags 0x1, hw-if-index 1, sw-if-index 1
  IP4: e2:0f:1e:59:ec:f7 -> 02:fe:d9:75:d5:b4
00:17:04:099285: ip4-input
  ICMP: 10.1.0.2 -> 10.1.0.3
    tos 0x00, ttl 64, length 84, checksum 0x3572 dscp CS0 ecn NON_ECN
    fragment id 0xf131, flags DONT_FRAGMENT
  ICMP echo_request checksum 0x5e7 id 12
00:17:04:099320: ip4-rewrite
  tx_sw_if_index 2 dpo-idx 3 : ipv4 via 10.1.0.3 memif1/0: mtu:9000
00:17:04:099321: memif1/0-output
  memif1/0 flags 0x0018000d
`, "ICMP 10.1.0.2 > 10.1.0.3, echo request", "sent on shop/b:net1"},
	{"a TTL that ends", `00:00:01:000001: virtio-input
  virtio: hw_if_index 1 next-index 4 vring 0 len 74
00:00:01:000002: ip4-input
  TCP: 10.1.0.2 -> 10.9.0.3
    tos 0x00, ttl 1, length 60
  TCP: 4711 -> 80
00:00:01:000003: ip4-drop
    fib:0 adj:0 flow:0x00000000
00:00:01:000004: error-drop
  rx:tap1
00:00:01:000005: drop
  ip4-input: ip4 ttl <= 1
`, "TCP 10.1.0.2 > 10.9.0.3, ports 4711 > 80", "dropped: its TTL has expired (ip4-input: ip4 ttl <= 1)"},
	{
		"an unknown error",
		"00:00:01:000001: memif-input\n  memif: hw_if_index 1\n00:00:01:000005: drop\n  some-node: some error\n",
		"headers unknown", "dropped: some-node: some error",
	},
	{"an ARP request", `00:00:01:000001: ethernet-input
  frame: flags 0x0, hw-if-index 1, sw-if-index 1
  ARP: 02:00:00:00:00:09 -> ff:ff:ff:ff:ff:ff
  request, type ethernet/IP4
    02:00:00:00:00:09/10.1.0.2 -> 10.1.0.1
00:00:01:000001: arp-input
  handled by the dataplane: arp
`, "ARP request 10.1.0.2 > 10.1.0.1", "handled by the dataplane: arp"},
	{"a route that is unreachable", `00:00:01:000000: ip4-input
  ICMP: 10.1.0.2 -> 10.1.0.3
    tos 0x00, ttl 64, length 84, checksum 0xe6f3 dscp CS0 ecn NON_ECN
  ICMP echo_request checksum 0x78bd id 11406
00:00:01:000001: ip4-null
` + `  ip4-null action:send-unreachable
00:00:01:000002: ip4-drop
  fib:1 adj:1 flow:0x00000000
00:00:01:000003: error-drop
  rx:tap1
00:00:01:000004: drop
  ip4-input: input ACL session deny drops
`, "ICMP 10.1.0.2 > 10.1.0.3, echo request", "dropped: the route to the destination is unreachable (ip4-null)"},
}

func TestPathsOfVPPAreDecoded(t *testing.T) {
	names := newInterfaceNames(map[string]string{
		"memif1/0":  "shop/b:net1",
		"tap1":      "shop/a:eth0",
		"memif1/01": "other",
	})
	for _, c := range tracesOfVPP {
		steps := parsePath(c.text)
		summary := summarise(steps)
		for _, s := range steps {
			s.Node, s.Text = names.replace(s.Node), names.replace(s.Text)
		}
		text, dropped := outcome(steps)
		if summary != c.summary || text != c.outcome || dropped != strings.HasPrefix(c.outcome, "dropped") {
			t.Errorf("%s: %q, %q (dropped %t), want %q, %q", c.name, summary, text, dropped, c.summary, c.outcome)
		}
	}
	if s := parsePath(tracesOfVPP[0].text)[1]; s.Node != "ethernet-input" ||
		s.At.AsDuration() != 17*time.Minute+4*time.Second+99269*time.Microsecond {
		t.Errorf("%v", s)
	}
}

func FuzzPath(f *testing.F) {
	for _, c := range tracesOfVPP {
		f.Add(c.text)
	}
	names := newInterfaceNames(map[string]string{"tap1": "shop/a:eth0"})
	f.Fuzz(func(t *testing.T, text string) {
		steps := parsePath(text)
		if len(steps) > maxPath {
			t.Fatalf("%d steps", len(steps))
		}
		packet := &operatorv1.TracedPacket{Summary: summarise(steps), Steps: steps}
		for _, s := range steps {
			if len(s.Text) > 4*maxText {
				t.Fatalf("a step of %d bytes", len(s.Text))
			}
			s.Node, s.Text = names.replace(s.Node), names.replace(s.Text)
		}
		packet.Outcome, packet.Dropped = outcome(steps)
		if _, err := proto.Marshal(packet); err != nil {
			t.Fatal(err) // invalid UTF-8
		}
	})
}

func TestRingIsBoundedAndCountsLosses(t *testing.T) {
	r := newRing(10 * (1000 + overhead))
	for range 25 {
		if r.room(1000) {
			r.put(&operatorv1.CapturedPacket{Data: make([]byte, 1000)})
		}
	}
	if got := r.take(); len(got) != 10 || r.losses() != 15 {
		t.Errorf("%d packets, %d lost", len(got), r.losses())
	}
	if r.used != 0 || !r.room(1000) || len(r.take()) != 0 {
		t.Errorf("%d bytes are in use after all packets are taken", r.used)
	}
}

func TestMessagesToTheClientAreBounded(t *testing.T) {
	r := newRing(maxRing)
	for range 100 {
		r.put(&operatorv1.CapturedPacket{Data: make([]byte, 60000)})
	}
	total := 0
	for got := r.take(); len(got) > 0; got = r.take() {
		if size := len(got) * 60000; size > maxBatch+60000 {
			t.Errorf("a message of %d bytes", size)
		}
		total += len(got)
	}
	if total != 100 {
		t.Errorf("%d packets", total)
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	at := func(container string, created time.Time, names ...string) pod.Attachment {
		a := pod.Attachment{Pod: pod.ID{Namespace: "shop", Name: "cart"}, Created: created}
		a.Key.ContainerID = container
		for _, n := range names {
			a.Interfaces = append(a.Interfaces, pod.Interface{Name: n, Object: container + "-" + n})
		}
		return a
	}
	s := New(Config{Attachments: func() []pod.Attachment {
		return []pod.Attachment{at("new", time.Unix(9, 0), "eth0", "net1"), at("old", time.Unix(1, 0), "eth0")}
	}})
	if found, err := s.interfacesOf("shop", "cart", "eth0"); err != nil || len(found) != 1 ||
		found[0].Object != "new-eth0" {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := s.interfacesOf("shop", "cart", ""); err != nil || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
	for name, err := range map[string]error{
		"pod":       func() error { _, err := s.interfacesOf("shop", "none", "eth0"); return err }(),
		"interface": func() error { _, err := s.interfacesOf("shop", "cart", "net7"); return err }(),
	} {
		if status.Code(err) != codes.NotFound {
			t.Errorf("unknown %s: %v", name, err)
		}
	}
	for name, req := range map[string]*operatorv1.CaptureRequest{
		"direction": {Direction: "up"}, "small ring": {Ring: 1}, "large ring": {Ring: 1 << 40},
		"long": {Duration: durationpb.New(2 * time.Hour)}, "negative": {Duration: durationpb.New(-1)},
	} {
		if _, err := limitsOf(req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range maxCaptures {
		if _, err := s.captures.take("captures"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.captures.take("captures"); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestTraceEndsAlthoughItsClientDoesNotRead(t *testing.T) {
	for name, stop := range map[string]func(cancel context.CancelFunc, stopping chan struct{}){
		"the time is over": func(cancel context.CancelFunc, _ chan struct{}) { cancel() },
		"the agent stops":  func(_ context.CancelFunc, stopping chan struct{}) { close(stopping) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stopping := make(chan struct{})
				blocked := make(chan struct{})
				defer close(blocked)
				time.AfterFunc(time.Minute, func() { stop(cancel, stopping) })
				began := time.Now()
				err := awaitReader(ctx, stopping, func() error { <-blocked; return nil })
				if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded ||
					took != time.Minute+lastWords {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}

func TestTraceReturnsTheErrorOfItsSending(t *testing.T) {
	want := errors.New("connection lost")
	if err := awaitReader(t.Context(), nil, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
