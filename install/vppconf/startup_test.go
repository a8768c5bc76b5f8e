package vppconf

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the expected configurations")

// options parses flags on top of the defaults.
func options(t *testing.T, args ...string) *Options {
	t.Helper()
	var o Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o
}

// configure sizes VPP for a node.
func configure(t *testing.T, root fs.FS, allowed []int, args ...string) (Config, error) {
	t.Helper()
	o := options(t, args...)
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	m, err := Detect(root, allowed)
	if err != nil {
		t.Fatal(err)
	}
	return New(o, &m)
}

var vhost = map[string]string{"dev/vhost-net": ""}

// server has two NUMA nodes of 8 processors each.
func server(huge, giga int, parts ...map[string]string) fs.FS {
	nodes := append(parts, numaNode(0, "0-7", huge, giga), numaNode(1, "8-15", huge, giga))
	return node("0-15", "0-1", nodes...)
}

func TestConfigurationsOfSeveralMachines(t *testing.T) {
	card := map[string]string{"sys/class/net/eth1/device/uevent": "DRIVER=ice\nPCI_SLOT_NAME=0000:3b:00.1"}
	for _, tt := range []struct {
		file    string
		root    fs.FS
		allowed []int
		args    []string
	}{
		{"one-processor", files(map[string]string{"sys/devices/system/cpu/online": "0"}), upTo(1), nil},
		{"laptop-without-hugepages", node("0-1", "0", numaNode(0, "0-1", 0, 0)), upTo(2), nil},
		{"taps-without-hugepages", node("0-3", "0", vhost, numaNode(0, "0-3", 12, 0)), upTo(4), nil},
		{"server", server(1024, 0, vhost), upTo(16), nil},
		{
			"server-with-dpdk", server(1024, 2, vhost, card), upTo(16),
			[]string{"--uplink=eth1", "--uplink-mode=dpdk", "--workers=3"},
		},
		{
			"server-with-af-xdp", server(0, 1, card), upTo(16),
			[]string{"--uplink=eth1", "--uplink-mode=af_xdp", "--main-core=9"},
		},
		{
			"container", server(4096, 0, vhost, map[string]string{"sys/fs/cgroup/hugetlb.2MB.max": "268435456"}),
			[]int{3, 4, 5, 10},
			[]string{"--runtime-dir=/run/weft-vpp", "--plugin-path=/opt/vpp/plugins", "--pods=30", "--memifs=4"},
		},
		{
			"all-by-flags", server(4096, 4), upTo(16),
			[]string{"--main-core=3", "--workers=9", "--hugepages=1G", "--buffers=100000"},
		},
	} {
		t.Run(tt.file, func(t *testing.T) {
			config, err := configure(t, tt.root, tt.allowed, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", tt.file+".conf"), config.String())
		})
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run go test ./install/vppconf -update and look at the difference (-file +printed):\n%s", diff)
	}
}

// TestEveryLineHasAReason also checks the limits of VPP's parser: words of at most 1023 bytes, lines of at most 4095.
func TestEveryLineHasAReason(t *testing.T) {
	printed, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(printed) < 8 {
		t.Fatalf("%d configurations (%v)", len(printed), err)
	}
	directive := regexp.MustCompile(`^  \S[^#]* # \S.{7,}$`)
	for _, file := range printed {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			frame := line == "" || line == "}" || strings.HasSuffix(line, " {") || strings.HasPrefix(line, "# ")
			if !frame && !directive.MatchString(line) || len(line) > 400 {
				t.Errorf("%s: %q", file, line)
			}
		}
		if opened, closed := bytes.Count(text, []byte("{")), bytes.Count(text, []byte("}")); opened != closed {
			t.Errorf("%s: %d opening and %d closing braces", file, opened, closed)
		}
	}
}

func TestNewFailsIfTheMachineLacksResources(t *testing.T) {
	for _, tt := range []struct {
		name    string
		root    fs.FS
		allowed []int
		args    []string
		want    string
	}{
		{"too few hugepages", server(18, 0), upTo(16), []string{"--hugepages=2M"},
			"--hugepages 2M: NUMA node 0 has 18 free hugepages of 2M, 38 are needed; reserve more"},
		{
			"hugepages of one NUMA node only", node("0-1", "0-1", numaNode(0, "0", 500, 0), numaNode(1, "1", 0, 0)),
			upTo(2), []string{"--hugepages=2M"},
			"--hugepages 2M: NUMA node 1 has 0 free hugepages of 2M, 19 are needed",
		},
		{
			"too few hugepages of a container",
			server(99, 0, map[string]string{"sys/fs/cgroup/hugetlb.2MB.max": "134217728"}), upTo(16),
			[]string{"--hugepages=2M"},
			"--hugepages 2M: this container may have 64 hugepages of 2M, 76 are needed",
		},
		{
			"no hugepages for a network card", server(0, 0), upTo(16),
			[]string{"--uplink=0000:3b:00.0", "--uplink-mode=dpdk"},
			"--uplink-mode dpdk needs hugepages: NUMA node 0 has 0 free hugepages of 2M",
		},
		{
			"a network card without hugepages", server(500, 0), upTo(16),
			[]string{"--uplink=eth1", "--uplink-mode=dpdk", "--hugepages=none"},
			"--uplink-mode dpdk needs hugepages: with --hugepages none",
		},
		{"an unknown network card", server(500, 0), upTo(16), []string{"--uplink=eth7", "--uplink-mode=dpdk"},
			"find the PCI address of eth7: open sys/class/net/eth7/device/uevent"},
		{"an unknown network card in the kernel", server(500, 0), upTo(16), []string{"--uplink=eth7"},
			"--uplink eth7: this machine has no interface of this name, and --uplink-mode af_packet needs one; run it on the node"},
		{
			"an unknown network card for AF_XDP", server(500, 0), upTo(16),
			[]string{"--uplink=eth7", "--uplink-mode=af_xdp"}, "--uplink eth7: this machine has no interface",
		},
		{
			"a PCI address in the kernel", server(500, 0), upTo(16), []string{"--uplink=0000:3b:00.0"},
			"--uplink 0000:3b:00.0: this machine has no interface",
		},
		{
			"a card that is not a PCI device",
			server(500, 0, map[string]string{"sys/class/net/v0/device/uevent": "DRIVER=virtio_net"}), upTo(16),
			[]string{"--uplink=v0", "--uplink-mode=dpdk"},
			"find the PCI address of v0: /sys/class/net/v0/device/uevent has no PCI_SLOT_NAME",
		},
		{
			"a processor of another container", server(0, 0), []int{4, 5}, []string{"--main-core=3"},
			"--main-core 3: VPP may use the processors 4,5 only",
		},
		{
			"more workers than processors", server(0, 0), []int{4, 5}, []string{"--workers=2"},
			"--workers 2: beside the main thread's processor VPP may use 1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := configure(t, tt.root, tt.allowed, tt.args...); err == nil ||
				!strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want one that starts with %q", err, tt.want)
			}
		})
	}
}

func TestValidateNamesInvalidFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--workers=255":           "--workers 255 is not within -1 and 254",
		"--hugepages=4M":          `--hugepages "4M" is not one of auto, none, 2M, 1G`,
		"--uplink-mode=netmap":    `--uplink-mode "netmap" is not one of af_packet, af_xdp, dpdk`,
		"--buffers=10":            "--buffers 10 is not within 4096 and 2097152",
		"--runtime-dir=run/vpp":   `--runtime-dir "run/vpp" is not an absolute path`,
		"--runtime-dir=/run/v pp": `--runtime-dir "/run/v pp" is not`,
		"--uplink=":               `--uplink "" is neither kernel nor`, "--uplink=e}{": `--uplink "e}{" is neither`,
		"--pods=-1":  "--pods -1 is not within 0",
		"--output=x": `--output "x" is not an absolute`, "--plugin-path=x": `--plugin-path "x" is not`,
		"--main-core=-2": "--main-core -2 is not within",
	} {
		if err := options(t, arg).Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want one that starts with %q", arg, err, want)
		}
	}
}

func TestRunWritesTheTargetOfALink(t *testing.T) {
	dir := t.TempDir()
	o := options(t, "--runtime-dir="+dir+"/run", "--output="+dir+"/startup.conf")
	if err := errors.Join(os.WriteFile(dir+"/real.conf", nil, 0o600), os.Symlink("real.conf", o.Output)); err != nil {
		t.Fatal(err)
	}
	if err := Run(o, io.Discard); err != nil {
		t.Fatal(err)
	}
	target, err := os.Readlink(o.Output)
	if written, _ := os.ReadFile(dir + "/real.conf"); err != nil || target != "real.conf" || len(written) == 0 {
		t.Errorf("the link is %q (%v), its target has %d bytes", target, err, len(written))
	}
}

func TestRunRestrictsFilesToTheirOwner(t *testing.T) {
	dir := t.TempDir()
	o := options(t, "--runtime-dir="+dir+"/run", "--output="+dir+"/etc/startup.conf")
	if err := os.Mkdir(o.RuntimeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := Run(o, &printed); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		o.RuntimeDir:           fs.ModeDir | 0o700,
		filepath.Dir(o.Output): fs.ModeDir | 0o700,
		o.Output:               0o600,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v (%v), want %s", name, info.Mode(), err, want)
		}
	}
	o.Output = ""
	if err := Run(o, &printed); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(dir + "/etc/startup.conf")
	if err != nil || printed.String() != string(written) {
		t.Errorf("printed and written differ (%v)", err)
	}
	o.Output = dir + "/x.conf"
	o.RuntimeDir = dir + "/etc/startup.conf"
	if err := Run(o, &printed); err == nil {
		t.Error("a runtime directory that is a file is accepted")
	}
}
