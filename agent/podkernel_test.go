package agent

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// forwards returns, by family, whether a pod's kernel forwards packets.
func (l *lab) forwards(p *node.Pod) (values []string) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			text, err := os.ReadFile("/proc/sys/" + name)
			if err != nil {
				l.Error(err)
			}
			values = append(values, strings.TrimSpace(string(text)))
		}
	})
	return values
}

// defaults returns the default routes of a pod's kernel.
func (l *lab) defaults(p *node.Pod) (routes []string) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		all, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		if err != nil {
			l.Error(err)
		}
		for _, r := range all {
			if ones, _ := r.Dst.Mask.Size(); ones == 0 {
				routes = append(routes, r.Gw.String())
			}
		}
	})
	return routes
}

// Forwarding and default routes follow the agent's configuration; pods reach each other in any case.
func TestPodsForwardAndHaveDefaultRoutesAsConfigured(t *testing.T) {
	dir := programs.Build(t)
	for name, tt := range map[string]struct {
		options            node.Options
		forwards, defaults string
	}{
		"by default":                         {node.Options{}, "0 0", "169.254.1.1 fe80::1"},
		"routers that have no default route": {node.Options{AllowIPForwarding: true, NoDefaultRoutes: true}, "1 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabWith(t, dir, tt.options)
			one := l.pod("one")
			other := l.pod("other")
			before := l.forwards(one)
			if strings.Join(before, " ") != "0 0" {
				t.Fatalf("a new namespace forwards: %v", before)
			}
			result := l.cni("ADD", one, nil)
			addresses := l.addresses(l.cni("ADD", other, nil))
			if got := strings.Join(l.forwards(one), " "); got != tt.forwards {
				t.Errorf("forwarding %s, want %s", got, tt.forwards)
			}
			if got := strings.Join(l.defaults(one), " "); got != tt.defaults {
				t.Errorf("default routes %q, want %q", got, tt.defaults)
			}
			for _, everything := range []string{`"0.0.0.0/0"`, `"::/0"`} {
				if has := bytes.Contains(result, []byte(everything)); has != (tt.defaults != "") {
					t.Errorf("the result has a route to %s: %v\n%s", everything, has, result)
				}
			}
			for _, a := range addresses {
				l.mustReach(one, a)
			}
			l.check(one, result)
		})
	}
}
