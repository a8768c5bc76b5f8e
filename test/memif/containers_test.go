package memif_test

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// Two containers with two memifs each: neither sees the other's memifs, and the other's secret connects to none.
func TestContainersOfAPodReachOnlyTheirOwnMemifs(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, both := l.admit("d", "m1/memif,m2/memif,m3/memif,m4/memif", "",
		kubelettest.Container{Name: "left", Limit: 2}, kubelettest.Container{Name: "right", Limit: 2})
	links := l.add(d)
	left := both[0]
	right := both[1]
	if left.Envs[memif.SecretVariable] == right.Envs[memif.SecretVariable] || directory(left) == directory(right) {
		t.Fatal("the containers have the same secret or directory")
	}
	owned := map[string][]node.Link{directory(left): links[1:3], directory(right): links[3:5]}
	one := l.start(d, left, "icmpresponder")
	other := l.start(d, right, "icmpresponder")
	for i, program := range []*program{one, one, other, other} {
		l.awaitOutput(program, links[1+i].Name+": connected to")
	}
	for _, link := range links[1:5] {
		for _, address := range link.Bare() {
			l.reach(a, address)
		}
	}
	for _, c := range both {
		l.onlyOwn(c, owned[directory(c)])
	}
	if output := one.out.String() + other.out.String(); strings.Contains(output, "not connected") {
		t.Errorf("output of the programs: %s", output)
	}

	other.end()
	l.silent(a, links[3].Bare()[0], links[4].Bare()[0])
	l.reach(a, links[1].Bare()[0])
	thief := l.start(d, with(right, memif.SecretVariable, left.Envs[memif.SecretVariable]), "icmpresponder")
	l.awaitOutput(thief, "m3: not connected: memif 1 on /run/memif/memif.sock: peer disconnected: incorrect secret")
	l.awaitOutput(thief, "m4: not connected: memif 2 on /run/memif/memif.sock: peer disconnected: incorrect secret")
}

// onlyOwn compares the memifs of a container with the expected links of the result.
func (l *lab) onlyOwn(c kubelettest.Container, want []node.Link) {
	l.Helper()
	text, err := os.ReadFile(inDirectory(c, memif.DescriptionFile))
	l.try(err)
	found, err := memif.ParseDescriptions(text)
	l.try(err)
	if len(found) != len(want) {
		l.Fatalf("container %s finds %+v", c.Name, found)
	}
	for i, f := range found {
		w := want[i]
		if f.ID != uint32(i+1) || f.Name != w.Name || f.MAC.String() != w.Mac || f.MTU != w.Mtu ||
			f.Addresses[0] != w.Addresses[0] || w.SocketPath != inDirectory(c, "memif.sock") {
			l.Errorf("container %s has %+v, the result has %+v", c.Name, f, w.Interface)
		}
	}
	if strings.Contains(string(text), c.Envs[memif.SecretVariable]) {
		l.Error("interfaces.json contains the secret")
	}
}

// silent expects no reply from any of the addresses.
func (l *lab) silent(from *node.Pod, addresses ...netip.Addr) {
	l.Helper()
	for _, to := range addresses {
		p, err := ping.Open(from.Netns, to)
		l.try(err)
		ctx, cancel := context.WithTimeout(l.Context(), 200*time.Millisecond)
		if _, err := p.Once(ctx, to, 1); err == nil {
			l.Errorf("%s answers", to)
		}
		cancel()
		l.try(p.Close())
	}
}
