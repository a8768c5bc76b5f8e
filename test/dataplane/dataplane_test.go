package dataplane_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m, programs.Keep()) }

func contains(text string, all ...string) bool {
	return !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(text, part) })
}

func answers(d *dataplane.Dataplane) bool {
	conn, err := net.Dial("unix", d.Socket())
	return err == nil && conn.Close() == nil
}

func TestDataplaneRestartsAfterAKill(t *testing.T) {
	netnstest.Require(t)
	d := dataplane.Run(t, dataplane.Options{})
	first := d.PID()
	if d.IsVPP() != (dataplane.Prefix() != "") || d.Version() == "" || first == 0 || !answers(d) {
		t.Fatalf("IsVPP %t, version %q, pid %d", d.IsVPP(), d.Version(), first)
	}
	if err := d.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.Ended()
	if d.PID() != 0 || answers(d) {
		t.Error("the dataplane answers after Kill")
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.PID() == first || d.PID() == 0 || !answers(d) {
		t.Errorf("pid %d after pid %d", d.PID(), first)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	netnstest.Require(t)
	o := dataplane.Options{}
	if dataplane.Prefix() == "" {
		o.Programs = programs.Build(t)
	}
	d, err := dataplane.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Kill(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(d.Dir()); !os.IsNotExist(err) {
		t.Errorf("directory: %v", err)
	}
	if left, _ := filepath.Glob("/dev/shm/" + filepath.Base(d.Dir()) + "*"); len(left) > 0 {
		t.Errorf("shared memory %v", left)
	}
}

func TestStartFailsWithTheOutputOfTheDataplane(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "bin")
	plugins := filepath.Join(filepath.Dir(bin), "lib", "any", "vpp_plugins")
	for _, dir := range []string{bin, plugins} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"vpp", "weft-vswitch"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho no memory >&2\nexit 7\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, prefix := range map[string]string{"weft-vswitch": "", "VPP": filepath.Dir(bin)} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(dataplane.PrefixVariable, prefix)
			d, err := dataplane.New(dataplane.Options{Programs: bin})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Start(t.Context()); err == nil || !contains(err.Error(), "exit status 7", "no memory") {
				t.Errorf("got %v", err)
			}
		})
	}
}
