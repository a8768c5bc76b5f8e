package install

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/cni/cnitest"
	"github.com/weftnet/weft/proto/serving"
)

func (n *node) uninstall(pods Pods, changes ...func(*Options)) error {
	o := n.options()
	o.Wait = 0
	for _, change := range changes {
		change(&o)
	}
	return Uninstall(n.t.Context(), o, pods, &n.out)
}

func TestUninstallRemovesAllFilesOfWeft(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.write("bin/portmap", supporting("1.0.0", "1.1.0"))
	n.write("net.d/99-other.conflist", "{}")
	n.install()
	socket := n.options().Socket
	if err := serving.Mark(socket); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second run changes nothing
		if err := n.uninstall(noPods); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.entries("bin") + " " + n.entries("net.d"); got != "portmap 99-other.conflist" {
		t.Errorf("left: %s", got)
	}
	if _, err := os.Lstat(serving.File(socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file with the serving time is left: %v", err)
	}
	for _, said := range []string{
		"removed " + serving.File(socket), "removed " + n.path("net.d/10-weft.conflist"),
		"removed " + n.path("bin/weft-cni"), "removed " + n.path("bin/weft-ipam"), "left the state",
	} {
		if !strings.Contains(n.out.String(), said) {
			t.Errorf("the output does not have %q:\n%s", said, n.out.String())
		}
	}
}

func TestProgramsStayWhilePodsOrConfigurationsNeedThem(t *testing.T) {
	pods := func(names ...string) Pods { return func(context.Context) ([]string, error) { return names, nil } }
	tests := []struct {
		name, conf string
		pods       Pods
		force      bool
		why        string
	}{
		{"a pod", "", pods("shop/cart-0"), false, "1 pods need them for their deletion (shop/cart-0)"},
		{
			"many pods", "", pods("a/1", "a/2", "a/3", "a/4"), false,
			"4 pods need them for their deletion (a/1, a/2, a/3, ...)",
		},
		{
			"an agent that fails", "",
			func(context.Context) ([]string, error) { return nil, errors.New("agent not reachable") }, false,
			"agent not reachable",
		},
		{"a pod with force", "", pods("shop/cart-0"), true, ""},
		{
			"another list", `{"name":"x","plugins":[{"type":"bridge"},{"type":"weft-cni"}]}`, noPods, true,
			"50-x.conflist calls them",
		},
		{
			"another configuration with the IPAM plugin", `{"name":"x","type":"macvlan","ipam":{"type":"weft-ipam"}}`,
			noPods, true, "50-x.conflist calls them",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			n.install()
			if tt.conf != "" {
				n.write("net.d/50-x.conflist", tt.conf)
			}
			err := n.uninstall(tt.pods, func(o *Options) { o.Force = tt.force })
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want %q", err, tt.why)
			}
			if n.has("net.d/10-weft.conflist") || n.has("bin/weft-cni") != (tt.why != "") {
				t.Errorf("net.d: %q, bin: %q", n.entries("net.d"), n.entries("bin"))
			}
			if tt.why != "" && !strings.Contains(n.out.String(), "left "+n.path("bin/weft-cni")) {
				t.Errorf("output:\n%s", n.out.String())
			}
		})
	}
}

func TestUninstallWaitsForTheLastPod(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.install()
	calls := 0
	pods := func(context.Context) ([]string, error) {
		if calls++; calls < 3 {
			return []string{"shop/cart-0"}, nil
		}
		return nil, nil
	}
	if err := n.uninstall(pods, func(o *Options) { o.Wait = time.Minute }); err != nil || n.entries("bin") != "" {
		t.Errorf("error %v, bin: %q", err, n.entries("bin"))
	}
}

func TestUninstallKeepsForeignFiles(t *testing.T) {
	tests := []struct{ name, file, content string }{
		{
			"a foreign list with the name of Weft's", "net.d/10-weft.conflist",
			`{"name":"mine","plugins":[{"type":"bridge"}]}`,
		},
		{"a list with another first plugin", "net.d/10-weft.conflist", `{"name":"weft","plugins":[{"type":"bridge"}]}`},
		{"not a list", "net.d/10-weft.conflist", "text"},
		{"a foreign program", "bin/weft-cni", "#!/bin/sh\necho another\n"},
		{"a program instead of the link", "bin/weft-ipam", "#!/bin/sh\necho another\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			path := n.write(tt.file, tt.content)
			if err := n.uninstall(noPods); err != nil {
				t.Fatal(err)
			}
			if n.read(tt.file) != tt.content || !strings.Contains(n.out.String(), "left "+path) {
				t.Errorf("output:\n%s", n.out.String())
			}
		})
	}
}

func TestUninstallRemovesProgramsOfAnotherBuild(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.install(next)
	if err := n.uninstall(noPods); err != nil || n.entries("bin") != "" {
		t.Errorf("error %v, left: %s", err, n.entries("bin"))
	}
}

func TestInstallKeepsAForeignFileNamedLikeTheLink(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.write("bin/weft-ipam", "mine")
	n.install()
	if info, err := os.Lstat(n.path("bin/weft-ipam")); err != nil || !info.Mode().IsRegular() ||
		!strings.Contains(n.log.String(), n.path("bin/weft-ipam")) {
		t.Errorf("%v (%v), log:\n%s", info, err, n.log.String())
	}
}
