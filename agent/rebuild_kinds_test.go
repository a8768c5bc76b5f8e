package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/test/node"
)

func TestAVethOfNobodyIsLeftAlone(t *testing.T) {
	l := newLabWith(t, build(t), node.Options{PodInterface: "veth"})
	a := l.pod("a")
	result := l.cni("ADD", a, nil)
	alias := l.setAlias(a, "")
	l.restartAfter(os.Remove)
	l.restartAfter(func(string) error { return nil }) // the debt is not forgotten
	if lines := l.logged("left alone"); len(lines) != 2 || !strings.Contains(lines[0], "-eth0") {
		t.Errorf("the veth of nobody was logged so: %q", lines)
	}
	for _, operation := range l.resyncs() {
		if strings.HasPrefix(operation, "delete ") {
			t.Errorf("the resync did %s", operation)
		}
	}
	b := l.pod("b")
	l.cni("ADD", b, nil) // gets other addresses than the pod that nobody knows
	l.setAlias(a, alias)
	for _, address := range l.addresses(result) {
		l.mustReach(b, address)
	}
}
