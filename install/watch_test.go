package install

import (
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/cni/cnitest"
)

func (n *node) watching() {
	n.t.Helper()
	n.eventually("the watch starts", func() bool { return strings.Contains(n.log.String(), "msg=watching") })
}

func TestWatchRestoresRemovedFiles(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	for _, removed := range []string{"bin/weft-cni", "bin/weft-ipam", "net.d/10-weft.conflist", "bin", "net.d"} {
		// RemoveAll fails if the watch restores a file meanwhile.
		n.eventually(removed+" is removed", func() bool { return os.RemoveAll(n.path(removed)) == nil })
		n.eventually(removed+" is restored", func() bool {
			return n.has("bin/weft-cni") && n.has("bin/weft-ipam") && n.has("net.d/10-weft.conflist")
		})
	}
}

func TestWatchRestoresTheConfigurationWhenTheAgentIsReady(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	n.agent.Behave(cnitest.Starting)
	if err := os.Remove(n.path("net.d/10-weft.conflist")); err != nil {
		t.Fatal(err)
	}
	n.eventually("the reason is logged", func() bool { return strings.Contains(n.log.String(), "resync under way") })
	if n.has("net.d/10-weft.conflist") {
		t.Error("the configuration exists before the agent is ready")
	}
	n.agent.Behave(cnitest.Serve)
	n.eventually("the configuration is restored", func() bool { return n.has("net.d/10-weft.conflist") })
}

func TestTheEndOfTheWatchKeepsAllFiles(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	stop := n.watch()
	n.watching()
	stop()
	if got := n.entries("bin") + " " + n.entries("net.d"); got != "weft-cni weft-cni.json weft-ipam 10-weft.conflist" {
		t.Errorf("left: %s", got)
	}
}

func TestWatchKeepsChangedFiles(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	n.install(next, func(o *Options) { o.LogFile = "/var/log/weft-cni.log" }) // a manual upgrade
	n.eventually("all files are logged", func() bool {
		return strings.Count(n.log.String(), "installed file was changed") == 3
	})
	if build, err := (plugin{n.path("bin/weft-cni")}).build(t.Context()); build != nextBuild {
		t.Errorf("the watch restored %q (%v)", build, err)
	}
	if !strings.Contains(n.read("net.d/10-weft.conflist"), "logFile") {
		t.Error("the watch restored its configuration")
	}
}

func TestWatchExtendsARewrittenList(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	path := n.write("net.d/10-calico.conflist", calico)
	n.watch(chainedTo(path))
	n.watching()
	for _, content := range []string{calico, calico[:40], strings.Replace(calico, "1440", "1300", 1)} {
		n.write("net.d/10-calico.conflist", content)
	}
	n.eventually("the list has the change and Weft's object", func() bool {
		now := n.read("net.d/10-calico.conflist")
		return strings.Contains(now, "weft-cni") && strings.Contains(now, "1300")
	})
}

func TestUninstallStopsTheWatch(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch()
	n.watching()
	if err := n.uninstall(noPods); err != nil {
		t.Fatal(err)
	}
	n.eventually("the watch notices", func() bool { return strings.Contains(n.log.String(), "files are not restored") })
	if got := n.entries("bin") + n.entries("net.d"); got != "" {
		t.Errorf("restored: %s", got)
	}
	n.install() // removes the marker
	if !n.has("net.d/10-weft.conflist") || n.has("run/uninstalled") {
		t.Error("a new installation is not complete")
	}
}
