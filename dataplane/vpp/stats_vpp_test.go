package vpp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch"
)

// startVPP runs the VPP installed at the prefix that WEFT_VPP names, in the namespace of the test, with its sockets in dir.
func startVPP(t *testing.T, dir string) (socket string, kill func()) {
	t.Helper()
	prefix := os.Getenv("WEFT_VPP")
	if prefix == "" {
		t.Skip("needs WEFT_VPP, the prefix of an installed VPP")
	}
	libraries, err := filepath.Glob(filepath.Join(prefix, "lib/*-linux-gnu"))
	if err != nil || len(libraries) != 1 {
		t.Fatalf("libraries of VPP: %v, %v", libraries, err)
	}
	conf := strings.NewReplacer("RUN", dir, "LIB", libraries[0]).Replace(`
unix { nodaemon nosyslog log RUN/vpp.log cli-listen RUN/cli.sock runtime-dir RUN/run pidfile vpp.pid }
api-segment { prefix weftstats` + fmt.Sprint(os.Getpid()) + ` }
socksvr { socket-name RUN/api.sock }
statseg { socket-name RUN/stats.sock size 32m page-size 4k }
memory { main-heap-size 256M main-heap-page-size 4k }
buffers { page-size 4k buffers-per-numa 8192 default data-size 2048 }
plugins { path LIB/vpp_plugins }
`)
	if err := os.WriteFile(filepath.Join(dir, "startup.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(prefix, "bin/vpp"), "-c", filepath.Join(dir, "startup.conf"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries[0])
	out, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func(signal os.Signal) {
		if ended {
			return
		}
		ended = true
		if err := errors.Join(cmd.Process.Signal(signal), ignoreExit(cmd.Wait()), out.Close()); err != nil {
			t.Error("end VPP:", err)
		}
	}
	t.Cleanup(func() {
		end(unix.SIGTERM)
		if t.Failed() {
			text, _ := os.ReadFile(out.Name())
			t.Logf("VPP: %s", text)
		}
	})
	return filepath.Join(dir, "api.sock"), func() { end(unix.SIGKILL) }
}

func ignoreExit(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil
	}
	return err
}

func TestCountersOfARestartedVPPAreItsOwn(t *testing.T) {
	netnstest.Require(t)
	dir := shortDir(t)
	socket, kill := startVPP(t, dir)
	s := newStats(t, StatsSocket(socket))
	first := connect(t, socket, Options{})
	loop := &interfaces.CreateLoopbackInstanceReply{}
	c := &cable{t: t, client: first}
	c.send(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: 77}, loop)
	read, err := s.read(t.Context())
	if err != nil || int(loop.SwIfIndex) >= len(read.names) || string(read.names[loop.SwIfIndex]) != "loop77" {
		t.Fatal(read, err)
	}
	kill()
	if _, err := s.read(t.Context()); err == nil {
		t.Error("the segment of a VPP that was killed is read")
	}
	startVPP(t, dir)
	connect(t, socket, Options{}) // waits until it answers
	if read, err = s.read(t.Context()); err != nil || len(read.names) > int(loop.SwIfIndex) {
		t.Errorf("after the restart: %+v, %v", read, err)
	}
}

// TestCountersAreReadWhileInterfacesComeAndGo reads the segment while the dataplane changes its directory.
func TestCountersAreReadWhileInterfacesComeAndGo(t *testing.T) {
	netnstest.Require(t)
	for name, start := range map[string]func(t *testing.T) string{
		"vswitch": serve,
		"VPP":     func(t *testing.T) string { socket, _ := startVPP(t, shortDir(t)); return socket },
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, start(t), Options{})
			c := &cable{t: t, client: client}
			ctx, cancel := context.WithCancel(t.Context())
			reads, done := 0, make(chan error, 1)
			go func() {
				for ctx.Err() == nil {
					read, err := client.stats.read(ctx)
					if err != nil && ctx.Err() == nil {
						done <- err
						return
					}
					if err == nil && len(read.combined["rx"]) > 0 && len(read.names) > len(read.combined["rx"][0]) {
						done <- fmt.Errorf("%d names, %d counters", len(read.names), len(read.combined["rx"][0]))
						return
					}
					reads++
				}
				done <- nil
			}()
			for range 10 {
				var made []interface_types.InterfaceIndex
				for i := range 60 {
					reply := &interfaces.CreateLoopbackInstanceReply{}
					c.send(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: uint32(100 + i)}, reply)
					made = append(made, reply.SwIfIndex)
				}
				for _, i := range made {
					c.send(&interfaces.DeleteLoopback{SwIfIndex: i}, &interfaces.DeleteLoopbackReply{})
				}
			}
			cancel()
			if err := <-done; err != nil || reads == 0 {
				t.Errorf("after %d readings: %v", reads, err)
			}
			t.Logf("%d readings while 600 interfaces came and went", reads)
		})
	}
}

func TestStatsSocketIsWhereTheVswitchServesIt(t *testing.T) {
	for _, socket := range []string{"/run/weft/vswitch-api.sock", "/run/vpp/api.sock", "/x/other"} {
		if ours, theirs := StatsSocket(socket), vswitch.StatsSocket(socket); ours != theirs {
			t.Errorf("%s: %s, the vswitch says %s", socket, ours, theirs)
		}
	}
}

func TestErrorsOfTheVswitchHaveTheNamesOfVPP(t *testing.T) {
	netnstest.Require(t)
	mustNameErrorsAsVPP(t, connect(t, serve(t), Options{}))
}
