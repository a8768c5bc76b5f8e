package install

import (
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/cni/cnitest"
)

func (n *node) watching() {
	n.t.Helper()
	n.eventually("the watch begins", func() bool { return strings.Contains(n.log.String(), "msg=watching") })
}

// rows: CIL-01
func TestWhatIsRemovedIsPutBack(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	for _, gone := range []string{"bin/weft-cni", "bin/weft-ipam", "net.d/10-weft.conflist", "bin", "net.d"} {
		// What the watch puts back before a directory is empty is removed with it.
		n.eventually(gone+" is gone", func() bool { return os.RemoveAll(n.path(gone)) == nil })
		n.eventually(gone+" is back", func() bool {
			return n.has("bin/weft-cni") && n.has("bin/weft-ipam") && n.has("net.d/10-weft.conflist")
		})
	}
}

func TestTheConfigurationComesBackOnlyWhenTheAgentIsReady(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	n.agent.Behave(cnitest.Starting)
	if err := os.Remove(n.path("net.d/10-weft.conflist")); err != nil {
		t.Fatal(err)
	}
	n.eventually("the reason is said", func() bool { return strings.Contains(n.log.String(), "resync under way") })
	if n.has("net.d/10-weft.conflist") {
		t.Error("it is back without an agent")
	}
	n.agent.Behave(cnitest.Serve)
	n.eventually("it is back", func() bool { return n.has("net.d/10-weft.conflist") })
}

// rows: CIL-23
func TestTheEndOfTheWatchLeavesEverything(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	stop := n.watch()
	n.watching()
	stop()
	if got := n.entries("bin") + " " + n.entries("net.d"); got != "weft-cni weft-ipam 10-weft.conflist" {
		t.Errorf("left: %s", got)
	}
}

func TestWhatSomebodyChangedIsLeft(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	n.install(next, func(o *Options) { o.LogFile = "/var/log/weft-cni.log" }) // another version, as in an upgrade by hand
	n.eventually("it is said", func() bool { return strings.Count(n.log.String(), "an installed file was changed") == 2 })
	if said, err := (plugin{n.path("bin/weft-cni")}).version(t.Context()); said != nextBuild {
		t.Errorf("the watch brought %q back (%v)", said, err)
	}
	if !strings.Contains(n.read("net.d/10-weft.conflist"), "logFile") {
		t.Error("the watch brought its configuration back")
	}
}

func TestAListThatItsOwnerWritesAnewIsExtendedAgain(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	path := n.write("net.d/10-calico.conflist", calico)
	n.watch(chainedTo(path))
	n.watching()
	for _, content := range []string{calico, calico[:40], strings.Replace(calico, "1440", "1300", 1)} {
		n.write("net.d/10-calico.conflist", content)
	}
	n.eventually("Weft is in it again, and so is the change", func() bool {
		now := n.read("net.d/10-calico.conflist")
		return strings.Contains(now, "weft-cni") && strings.Contains(now, "1300")
	})
}

func TestUninstallingEndsTheRepairs(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	if err := n.uninstall(noPods); err != nil {
		t.Fatal(err)
	}
	n.eventually("the watch has heard of it", func() bool { return strings.Contains(n.log.String(), "nothing is put back any more") })
	if got := n.entries("bin") + n.entries("net.d"); got != "" {
		t.Errorf("put back: %s", got)
	}
	n.install() // which ends that
	if !n.has("net.d/10-weft.conflist") || n.has("run/uninstalled") {
		t.Error("installing again does not begin anew")
	}
}
