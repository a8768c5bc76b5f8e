package ipnet_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// policers lists the policers of a node, one per line, with the names of interfaces in their pods.
func policersOf(t *testing.T, n *node, a *pod.Attachment) string {
	t.Helper()
	var lines []string
	for key, v := range n.committer.Values() {
		p, is := v.(wire.Policer)
		if !is {
			continue
		}
		dscp := "-"
		if p.DSCP != nil {
			dscp = fmt.Sprint(*p.DSCP)
		}
		name := p.Interface
		for _, i := range a.Interfaces {
			if i.Object == p.Interface {
				name = i.Name
			}
		}
		if key != wire.PolicerKey(p.Interface, p.Direction) {
			t.Errorf("%+v has the key %s", p, key)
		}
		line := fmt.Sprint(name, " ", p.Direction, " ", p.Rate, " ", p.Burst, " ", dscp)
		lines = append(lines, fmt.Sprint(line, " bridged=", p.Bridged, " bare=", p.Bare))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestLimitsOfInterfacesArePolicers(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("red", pod.L2, "10.5.0.0/24"))
	ev := asking("a", "t1/tap, v1/veth/red, s1/tap/stub, m1/memif", `{
		"t1": {"dscp": "EF"},
		"v1": {"rate": {"ingress": "1M", "egress": "2M"}, "burst": {"egress": 5000}, "dscp": 0},
		"m1": {"rate": {"egress": "4M"}, "mode": "ip"},
		"s1": {"rate": "3M"}}`)
	ev.Grants = []pod.Grant{grant("a", 1, 1)}
	ev.Annotations[pod.AnnotationIngress] = "10M"
	ev.Annotations[pod.AnnotationEgress] = "20M"
	a := n.add(t, ev)
	want := `eth0 input 20000 625000 - bridged=false bare=false
eth0 output 10000 312500 - bridged=false bare=false
m1 input 4000 125000 - bridged=false bare=true
s1 input 3000 93750 - bridged=false bare=false
s1 output 3000 93750 - bridged=false bare=false
t1 input 4294967295 4294967295 46 bridged=false bare=false
v1 input 2000 5000 0 bridged=true bare=false
v1 output 1000 80000 - bridged=true bare=false`
	if got := policersOf(t, n, a); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	n = n.restarted(t)
	if got := policersOf(t, n, a); got != want {
		t.Errorf("after a restart:\n%s", got)
	}
	n.delete(t, ev)
	if got := policersOf(t, n, a); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// VPP 26.06 cannot limit the rate of a trunk.
func TestLimitOfATrunkIsMarked(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, lab(t))
	ev := asking("a", "t1/tap/lab, t2/tap/lab",
		`{"t1": {"rate": {"egress": "1M"}, "vlans": [100]}, "t2": {"rate": {"egress": "1M"}}}`)
	a := n.add(t, ev)
	trunks := map[string]bool{}
	for _, v := range n.committer.Values() {
		if p, is := v.(wire.Policer); is {
			trunks[p.Interface] = p.Trunk
		}
	}
	for _, i := range a.Interfaces {
		if want := i.Name == "t1"; trunks[i.Object] != want {
			t.Errorf("%s: trunk %v", i.Name, trunks[i.Object])
		}
	}
}

func TestBurstThatHoldsNoPacketIsRefused(t *testing.T) {
	n := newNode(t, four).run(t)
	err := n.refuses(t, asking("a", "t1/tap", `{"t1": {"rate": "1M", "burst": 1513}}`))
	if err == nil || !strings.Contains(err.Error(), "interface t1: burst: 1513 bytes, and a packet of MTU 1500 has 1514") {
		t.Errorf("error %v", err)
	}
	n.add(t, asking("b", "t1/tap", `{"t1": {"rate": "1M", "burst": 1514}}`))
}

func TestReconstructedInterfaceHasTheLimitsOfItsPolicers(t *testing.T) {
	n := newNode(t, four).run(t)
	again := newNode(t, four)
	ev := sandbox("a")
	ev.Annotations = map[string]string{pod.AnnotationIngress: "1M", pod.AnnotationEgress: "2M"}
	was := n.add(t, ev)
	f := foundOf(t, n, was)
	for _, v := range n.committer.Values() {
		if p, is := v.(wire.Policer); is {
			f.Policers = append(f.Policers, p)
		}
	}
	dscp := uint8(7)
	for want, policers := range map[string][]wire.Policer{
		`{"ingress":{"kilobits":1000,"burst":80000},"egress":{"kilobits":2000,"burst":80000}}`: f.Policers,
		`{"dscp":7}`: {{Direction: wire.PoliceInput, Rate: 1<<32 - 1, Burst: 1<<32 - 1, DSCP: &dscp}},
		`{"egress":{"kilobits":5,"burst":6},"dscp":7}`: {{Direction: wire.PoliceInput, Rate: 5, Burst: 6, DSCP: &dscp}},
		`{}`: nil,
	} {
		f.Policers = policers
		is, err := reconstruct(again, f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(is.Interfaces[0].Limits); string(got) != want {
			t.Errorf("limits %s (%v), want %s", got, err, want)
		}
	}
}
