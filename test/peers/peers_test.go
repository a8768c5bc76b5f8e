package peers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpackTestpmd writes the files of the packages below root.
func unpackTestpmd(t *testing.T, root string) {
	t.Helper()
	write(t, "", 0o755, root, "usr/bin/dpdk-testpmd")
	for _, name := range drivers {
		write(t, "", 0o644, root, "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_"+name+".so.23")
	}
}

func TestTestpmdIsFoundInOrderOfPrecedence(t *testing.T) {
	cache, path := emptyMachine(t)
	if _, err := Testpmd(); !errors.Is(err, ErrNone) {
		t.Errorf("nowhere: %v", err)
	}
	unpacked := filepath.Join(cache, "dpdk", "root")
	unpackTestpmd(t, unpacked)
	installed := write(t, "", 0o755, path, "dpdk-testpmd")
	named := t.TempDir()
	unpackTestpmd(t, named)
	for _, tt := range []struct{ name, mode, dir, want string }{
		{"installed, in the cache", "", "", installed},
		{"named, installed, in the cache", "", named, filepath.Join(named, "usr/bin/dpdk-testpmd")},
		{"as if nothing were installed", Cached, named, filepath.Join(unpacked, "usr/bin/dpdk-testpmd")},
		{"what is named is empty", "", t.TempDir(), installed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(Variable, tt.mode)
			t.Setenv(DPDKVariable, tt.dir)
			if p, err := Testpmd(); p.Path != tt.want || err != nil {
				t.Errorf("got %s, %v, want %s", p.Path, err, tt.want)
			}
		})
	}
}

func TestUnpackedTestpmdGetsItsLibrariesAndDrivers(t *testing.T) {
	cache, _ := emptyMachine(t)
	root := filepath.Join(cache, "dpdk", "root")
	unpackTestpmd(t, root)
	p, err := Testpmd()
	if err != nil {
		t.Fatal(err)
	}
	libraries := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	driver := filepath.Join(libraries, "dpdk/pmds-23.0/librte_net_memif.so.23")
	cmd := p.Command(t.Context(), "--", "-i")
	if !slices.Contains(cmd.Env, "LD_LIBRARY_PATH="+libraries) || !slices.Contains(cmd.Args, driver) ||
		cmd.Args[len(cmd.Args)-1] != "-i" {
		t.Errorf("%q with %q", cmd.Args, p.Environment)
	}
}

func TestPluginsAreFoundOnlyTogether(t *testing.T) {
	emptyMachine(t)
	t.Setenv(Variable, Installed)
	dir := t.TempDir()
	t.Setenv(PluginsVariable, dir)
	write(t, "", 0o755, dir, "bridge")
	hostLocal := write(t, "", 0o644, dir, "host-local")
	if _, err := FindPlugins(); !errors.Is(err, ErrNone) {
		t.Errorf("found, although host-local is not executable: %v", err)
	}
	if err := os.Chmod(hostLocal, 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err := FindPlugins(); p.Dir != dir || err != nil {
		t.Errorf("found in %q (%v), want %q", p.Dir, err, dir)
	}
}

// Plugins find the wrapper in PATH: it runs the distribution's multi-call program by the requested name.
func TestUnpackedTablesAreWrapped(t *testing.T) {
	cache, _ := emptyMachine(t)
	root := filepath.Join(cache, "plugins", "root")
	for _, name := range usual {
		write(t, "", 0o755, root, "usr/lib/cni", name)
	}
	write(t, "#!/bin/sh\necho $XTABLES_LIBDIR \"$@\"\n", 0o755, root, "usr/sbin/xtables-nft-multi")
	write(t, "", 0o644, root, "usr/lib/x86_64-linux-gnu/xtables/libxt_comment.so")
	if err := wrapTables(root, root); err != nil {
		t.Fatal(err)
	}
	p, err := FindPlugins()
	if err != nil {
		t.Fatal(err)
	}
	dir, _, _ := strings.Cut(p.Search, ":")
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "ip6tables-save"), "-t", "nat").Output()
	if want := root + "/usr/lib/x86_64-linux-gnu/xtables ip6tables-save -t nat\n"; string(out) != want || err != nil {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestUnpackedDPDKUsesOnlyItsOwnDrivers(t *testing.T) {
	root := t.TempDir()
	library := write(t, "\x00/usr/lib/x/dpdk/pmds-23.0\x00", 0o644, root, "usr/lib/x86_64-linux-gnu/librte_eal.so.23.0")
	if err := separate(root); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(library); string(content) != "\x00/usr/lib/x/dpdk/none-23.0\x00" || err != nil {
		t.Errorf("got %q, %v", content, err)
	}
}
