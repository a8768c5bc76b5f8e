package dataplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

// startup is the startup.conf of a small VPP that shares the machine with others: no pinned core, pages of 4 KiB, no
// devices, and everything it writes below its directory or with the directory's name.
var startup = template.Must(template.New("startup.conf").Parse(
	`unix { nodaemon{{if not .Polls}} poll-sleep-usec 200{{end}} nosyslog log {{.Dir}}/vpp.log cli-listen {{.CLI}} runtime-dir {{.Dir}} pidfile {{.Dir}}/vpp.pid }
api-segment { prefix {{.Segment}} }
socksvr { socket-name {{.Socket}} }
statseg { socket-name {{.Stats}} size 32m page-size 4k }
memory { main-heap-size 512M main-heap-page-size 4k }
buffers { page-size 4k buffers-per-numa 16384 default data-size 2048 }
{{- if .Workers}}
cpu { workers {{.Workers}} }
{{- end}}
plugins {
  path {{.Plugins}}
{{- range .Without}}
  plugin {{.}}_plugin.so { disable }
{{- end}}
}
{{.Config}}
`))

// startupConfig writes the configuration for this dataplane.
func (d *Dataplane) startupConfig() (string, error) {
	plugins, err := d.pluginDir()
	if err != nil {
		return "", err
	}
	text := new(strings.Builder)
	err = startup.Execute(text, map[string]any{
		"Dir": d.options.Dir, "CLI": d.CLISocket(), "Socket": d.Socket(), "Stats": d.StatsSocket(),
		"Segment": d.segment(),
		"Plugins": plugins, "Workers": d.options.Workers, "Polls": d.options.Polls, "Config": d.options.Config,
		"Without": append([]string{"dpdk"}, d.options.Without...),
	})
	return text.String(), err
}

func (d *Dataplane) pluginDir() (string, error) { return pluginDir(d.prefix) }

// pluginDir finds the plugins of an installation, whose library directory depends on the distribution.
func pluginDir(prefix string) (string, error) {
	for _, pattern := range []string{"lib/*/vpp_plugins", "lib*/vpp_plugins"} {
		if found, err := filepath.Glob(filepath.Join(prefix, pattern)); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("%s=%s: no lib/*/vpp_plugins there: want the prefix of a VPP installation", PrefixVariable,
		prefix)
}

// RequireVPP skips a test that needs an installed VPP. It returns the environment in which the commands vpp and vppctl
// run.
func RequireVPP(t testing.TB) map[string]string {
	t.Helper()
	if Prefix() == "" {
		t.Skip("needs " + PrefixVariable)
	}
	plugins, err := pluginDir(Prefix())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"PATH":            filepath.Join(Prefix(), "bin") + ":/usr/bin:/bin",
		"LD_LIBRARY_PATH": filepath.Dir(plugins),
	}
}

func (d *Dataplane) vppCommand() *exec.Cmd {
	cmd := exec.Command(filepath.Join(d.prefix, "bin", "vpp"), "-c", d.path("startup.conf"))
	plugins, _ := d.pluginDir() // New found it
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(plugins))
	return cmd
}

// segment is the prefix of the names of shared memory, unique on the machine.
func (d *Dataplane) segment() string { return filepath.Base(d.options.Dir) }

// removeSegments removes the shared memory that a killed VPP leaves behind.
func (d *Dataplane) removeSegments() error {
	left, err := filepath.Glob(filepath.Join("/dev/shm", d.segment()+"-*"))
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(left))
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// HasTaps reports whether the dataplane can create taps: VPP needs vhost-net for them.
func HasTaps() bool {
	return Prefix() == "" || unix.Access("/dev/vhost-net", unix.R_OK|unix.W_OK) == nil
}

// Kinds are the types of link that the dataplane can create.
func Kinds() []string {
	if HasTaps() {
		return []string{"tap", "veth", "memif"}
	}
	return []string{"veth", "memif"}
}

// Tap is the type of link that tests request where a tap or a veth will do.
func Tap() string {
	if HasTaps() {
		return "tap"
	}
	return "veth"
}

// CustomInterfaces returns a value of the annotation contivpp.io/custom-if with veths instead of taps if the dataplane
// cannot create taps.
func CustomInterfaces(value string) string { return taps.ReplaceAllString(value, "/"+Tap()+"$1") }

// taps finds the type tap in the annotation, not a network whose name begins so.
var taps = regexp.MustCompile(`/tap([/,"\s]|$)`)

// mostVeths is the number of veths that a test may have on a VPP. A thread of VPP hangs with 16 that have unread
// packets: see docs/vpp.md. The node's own links count too.
const mostVeths = 13

// Crowd returns the number of pods with the given number of interfaces for a test that wants n: n, or fewer on a VPP
// that uses veths instead of taps (see mostVeths).
func Crowd(n, interfaces int) int {
	if HasTaps() { // weft-vswitch always has
		return n
	}
	return min(n, mostVeths/interfaces)
}

// Tries is how often a test sends a request that a route without a next hop answers, and how long it waits for each
// answer. VPP sends few ICMP errors of such routes: in 100 ms, one for each of four classes of addresses (ip_null_dpo.c
// of 25.10 and 26.06 limits them by a hash of both addresses). Other packets of the pod's kernel may be of the same
// class.
func Tries() (times int, wait time.Duration) {
	if Prefix() == "" {
		return 1, time.Minute
	}
	return 60, time.Second
}

// RequireTap skips a test on VPP where the kernel has no vhost-net, which VPP's taps need. weft-vswitch needs
// /dev/net/tun only: see netnstest.RequireTap.
func RequireTap(t testing.TB) {
	t.Helper()
	if !HasTaps() {
		t.Skip("needs /dev/vhost-net")
	}
}
