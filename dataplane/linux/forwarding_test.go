package linux

import (
	"os"
	"strings"
	"testing"
)

// A node whose addresses come from a router keeps them when it becomes one itself; links that ignore routers still do.
func TestANodeThatBecomesARouterStillFollowsOthers(t *testing.T) {
	l := newLab(t)
	const conf = "/proc/sys/net/ipv6/conf/"
	l.inside(func() {
		for i, name := range []string{"eth8", "eth9"} {
			addDummy(t, name)
			must(t, os.WriteFile(conf+name+"/accept_ra", []byte([]string{"1", "0"}[i]), 0))
		}
	})
	l.mustCommit(append(l.ground(), l.sysctl(forwarding6, "1"), l.sysctl("net/ipv4/ip_forward", "1"))...)
	l.quiet()
	l.inside(func() {
		for file, want := range map[string]string{"all/forwarding": "1", "eth8/accept_ra": "2", "eth9/accept_ra": "0", "default/accept_ra": "1"} {
			if text, err := os.ReadFile(conf + file); err != nil || strings.TrimSpace(string(text)) != want {
				t.Errorf("%s is %s, want %s (%v)", file, text, want, err)
			}
		}
		must(t, os.WriteFile(conf+"all/forwarding", []byte("0"), 0))
	})
	if got := l.different(); len(got) != 1 || !strings.HasSuffix(got[0], "/"+forwarding6) {
		t.Errorf("different are %v", got)
	}
	l.resync()
	l.quiet()
}
