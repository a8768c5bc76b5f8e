package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weftnet/weft/cni/cnitest"
)

func TestInstallCreatesProgramLinkAndConfiguration(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.install()
	if got, want := n.entries("bin"), "weft-cni weft-cni.json weft-ipam"; got != want {
		t.Errorf("programs %q, want %q", got, want)
	}
	if got, want := n.entries("net.d"), "10-weft.conflist"; got != want {
		t.Errorf("configurations %q, want %q", got, want)
	}
	if target, err := os.Readlink(n.path("bin/weft-ipam")); target != "weft-cni" {
		t.Errorf("weft-ipam is a link to %q (%v)", target, err)
	}
	for path, mode := range map[string]os.FileMode{"bin/weft-cni": 0o755, "net.d/10-weft.conflist": 0o600} {
		if info, err := os.Stat(n.path(path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v (%v), want mode %v", path, info.Mode(), err, mode)
		}
	}
	conf, err := libcni.ConfListFromBytes([]byte(n.read("net.d/10-weft.conflist")))
	if err != nil {
		t.Fatal(err)
	}
	if conf.CNIVersion != "1.1.0" || conf.Name != "weft" || conf.Plugins[0].Network.Type != "weft-cni" {
		t.Errorf("the runtime reads %s %s %+v", conf.CNIVersion, conf.Name, conf.Plugins[0].Network)
	}
	if err := libcni.NewCNIConfig([]string{n.path("bin")}, nil).GetStatusNetworkList(t.Context(), conf); err != nil {
		t.Errorf("STATUS by libcni: %v", err)
	}
}

func TestInstallDoesNotRewriteFiles(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.install()
	before := map[string]os.FileInfo{}
	paths := []string{"bin/weft-cni", "bin/weft-ipam", "net.d/10-weft.conflist"}
	for _, p := range paths {
		before[p], _ = os.Lstat(n.path(p))
	}
	n.agent.Behave(cnitest.Starting) // a second run does not need the agent
	n.install(shortWait)
	for _, p := range paths {
		if after, err := os.Lstat(n.path(p)); err != nil || !os.SameFile(before[p], after) ||
			!before[p].ModTime().Equal(after.ModTime()) {
			t.Errorf("%s was rewritten (%v)", p, err)
		}
	}
}

func TestTheConfigurationWaitsForTheAgent(t *testing.T) {
	tests := []struct {
		name      string
		behaviour []cnitest.Behaviour
		why       string
	}{
		{"no agent", nil, "not reachable"},
		{"the agent starts", []cnitest.Behaviour{cnitest.Starting}, "resync under way"},
		{"the agent hangs", []cnitest.Behaviour{cnitest.Hang}, "did not answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, tt.behaviour...)
			err := n.installer(shortWait).run(t.Context())
			if err == nil || !strings.Contains(err.Error(), n.path("net.d/10-weft.conflist")+" is not written") ||
				!strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want one with %q", err, tt.why)
			}
			if n.has("net.d/10-weft.conflist") || !n.has("bin/weft-cni") {
				t.Errorf("net.d: %q, bin: %q", n.entries("net.d"), n.entries("bin"))
			}
		})
	}
}

func TestTheConfigurationIsWrittenWhenTheAgentIsReady(t *testing.T) {
	n := newNode(t, cnitest.Starting)
	done := make(chan error, 1)
	i := n.installer()
	go func() { done <- i.run(t.Context()) }()
	n.eventually("the reason is logged", func() bool { return strings.Contains(n.log.String(), "resync under way") })
	if n.has("net.d/10-weft.conflist") {
		t.Error("the configuration exists before the agent is ready")
	}
	n.agent.Behave(cnitest.Serve)
	if err := <-done; err != nil || !n.has("net.d/10-weft.conflist") {
		t.Errorf("error %v, net.d: %q", err, n.entries("net.d"))
	}
}

func TestAProgramThatFailsItsTestIsNotInstalled(t *testing.T) {
	script := func(n *node, text string) func(*Options) {
		n.write("run/weft-cni", text)
		return func(o *Options) { o.Source = n.path("run") }
	}
	const versions = `echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}'`
	tests := []struct{ name, program, why string }{
		{"not executable", "text", "does not run on this node"},
		{"exits with an error", "#!/bin/sh\necho broken >&2; exit 3\n", "broken"},
		{"another build", "#!/bin/sh\necho weft v0.0.1\n", `of build "weft v0.0.1"`},
		{"does not support VERSION", "#!/bin/sh\necho " + thisBuild + "\n", "has no versions"},
		{
			"too old", "#!/bin/sh\n[ -n \"$CNI_COMMAND\" ] || { echo " + thisBuild + "; exit; }\n" + versions + "\n",
			"does not support CNI 1.1.0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			n.install()
			before := n.read("bin/weft-cni")
			err := n.installer(script(n, tt.program)).run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.why) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tt.why)
			}
			if n.read("bin/weft-cni") != before || n.entries("bin") != "weft-cni weft-cni.json weft-ipam" {
				t.Errorf("the working program was replaced; bin: %q", n.entries("bin"))
			}
		})
	}
}

func TestAnUpgradeReplacesARunningProgram(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.install()
	old, err := os.Open(n.path("bin/weft-cni")) // a running program is open, too
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	n.install(next)
	if build, err := (plugin{n.path("bin/weft-cni")}).build(t.Context()); build != nextBuild {
		t.Errorf("installed build %q (%v)", build, err)
	}
	info, err := old.Stat()
	if err != nil || info.Size() == 0 {
		t.Errorf("the old program was overwritten: %v (%v)", info, err)
	}
}

func TestAConfigurationNeverExistsWithoutItsProgram(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	ctx, cancel := context.WithCancel(t.Context())
	var observer sync.WaitGroup
	observer.Go(func() { n.observe(ctx) })
	for range 5 {
		n.install()
		n.install(next)
		if err := Uninstall(t.Context(), n.options(), noPods, &n.out); err != nil {
			t.Error(err)
		}
	}
	cancel()
	observer.Wait()
}

// observe reads the files a thousand times a second.
func (n *node) observe(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.inspect()
		case <-ctx.Done():
			return
		}
	}
}

// inspect checks the program if the configuration exists before and after.
func (n *node) inspect() {
	conf, err := os.ReadFile(n.path("net.d/10-weft.conflist"))
	if err != nil {
		return
	}
	program, err := os.Stat(n.path("bin/weft-cni"))
	switch _, removed := os.Stat(n.path("net.d/10-weft.conflist")); {
	case removed != nil:
		return
	case err != nil:
		n.t.Errorf("a configuration without a program: %v", err)
	case program.Mode() != 0o755 || program.Size() < 1<<20:
		n.t.Errorf("incomplete program: %v, %d bytes", program.Mode(), program.Size())
	}
	if _, err := libcni.ConfListFromBytes(conf); err != nil {
		n.t.Errorf("invalid configuration: %v", err)
	}
}

func TestConcurrentInstallersSucceed(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	var all sync.WaitGroup
	for range 4 {
		i := n.installer()
		all.Go(func() {
			if err := i.run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := n.entries("bin") + " " + n.entries("net.d"); got != "weft-cni weft-cni.json weft-ipam 10-weft.conflist" {
		t.Errorf("installed: %s", got)
	}
}

func TestTheErrorNamesAnInvalidDirectory(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.write("file", "")
	err := n.installer(func(o *Options) { o.BinDir = n.path("file/bin") }).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), n.path("file")) {
		t.Errorf("error %v", err)
	}
}

func TestTheErrorNamesASourceWithoutTheProgram(t *testing.T) {
	n := newNode(t)
	o := n.options()
	o.Source = n.path("run")
	err := Install(t.Context(), o, n.installer().log.Logger, &n.out)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(o.Source, "weft-cni")) ||
		!strings.Contains(err.Error(), "--source") {
		t.Errorf("error %v", err)
	}
}
