package peers

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFailedFetchHasAReason(t *testing.T) {
	tests := []struct {
		name, mode, apt, reason string
	}{
		{"no package manager", Cached, "", "apt-get is missing"},
		{"not wanted", Installed, "exit 0", "WEFT_PEERS=installed"},
		{
			"no network", Cached, "echo W: odd >&2; echo E: no route to host >&2; echo more >&2; exit 100",
			"E: no route to host",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, path := emptyMachine(t)
			t.Setenv(Variable, tt.mode)
			t.Setenv(PluginsVariable, t.TempDir())
			if tt.apt != "" {
				fakeApt(t, path, tt.apt)
			}
			var output bytes.Buffer
			Fetch(t.Context(), &output)
			if !strings.Contains(output.String(), tt.reason) ||
				strings.Count(output.String(), "are skipped\n") != len(all) || len(Found()) != 0 {
				t.Errorf("said %q, found %q", output.String(), Found())
			}
		})
	}
}

func fakeApt(t *testing.T, path, script string) {
	t.Helper()
	for _, name := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		write(t, "#!/bin/sh\n"+script+"\n", 0o755, path, name)
	}
}

// A child of apt-get holds its output open, for example while it waits for a network.
func TestFetchEndsAtItsTimeout(t *testing.T) {
	_, path := emptyMachine(t)
	fakeApt(t, path, "/bin/sleep 60 & wait")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var output bytes.Buffer
	began := time.Now()
	Fetch(ctx, &output)
	if took := time.Since(began); took > 20*time.Second ||
		strings.Count(output.String(), "timeout; a later run") != len(all) {
		t.Errorf("after %s: %s", took, output.String())
	}
}

func TestFetchWaitsForAnotherUntilItsTimeout(t *testing.T) {
	cache, path := emptyMachine(t)
	fakeApt(t, path, "exit 1")
	unlock, err := lock(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var output bytes.Buffer
	Fetch(ctx, &output)
	if !strings.Contains(output.String(), "another process holds") {
		t.Errorf("said %q", output.String())
	}
}

func TestFirstOfAlternativesIsNeeded(t *testing.T) {
	got := parseDepends(" python3:any, pci.ids | hwdata, librte-eal23 (>= 22.11), libc6 (>= 2.34)\n")
	if want := []string{"python3", "pci.ids", "librte-eal23", "libc6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOnlyLibrariesAreFetchedAsDependencies(t *testing.T) {
	output := "NOTE: nothing\nInst libc6 (2.36)\nInst perl (5.36)\nInst libperl5.36 (5.36)\nInst libfile-find-rule-perl (0.34)\n" +
		"Inst libnuma1:amd64 (2.0)\nInst iptables (1.8)\nConf iptables (1.8)\n"
	if got, want := parseClosure(output, []string{"iptables"}), []string{"libnuma1:amd64", "iptables"}; !slices.Equal(
		got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Packages are downloaded and unpacked in a temporary directory, and then renamed; new lists of packages are used if
// the machine's fail.
func TestPackagesAreUnpackedIntoTheCache(t *testing.T) {
	cache, path := emptyMachine(t)
	tools := "export PATH=/usr/bin:/bin\n"
	write(t, "#!/bin/sh\nexit 1\n", 0o755, path, "apt-cache")
	write(t, "#!/bin/sh\n"+tools+`case "$*" in
*update*) mkdir -p "$LISTS" && touch "$LISTS/new";;
*download*) touch one.deb two.deb;;
*install*) test -e "$LISTS/new" || exit 100; printf 'Inst iptables (1)\nInst libone (1)\n';;
esac
`, 0o755, path, "apt-get")
	write(t,
		"#!/bin/sh\n"+tools+
			`mkdir -p "$3/usr/lib/cni" && for p in bridge host-local; do touch "$3/usr/lib/cni/$p" && chmod 755 "$3/usr/lib/cni/$p"; done`,
		0o755, path, "dpkg-deb")
	t.Setenv("LISTS", filepath.Join(t.TempDir(), "lists"))
	var output bytes.Buffer
	Fetch(t.Context(), &output)
	if !slices.Equal(Found(), []string{"plugins"}) {
		t.Errorf("found %q; %s", Found(), output.String())
	}
	// root and two small files
	if left, err := os.ReadDir(filepath.Join(cache, "plugins")); err != nil || len(left) != 3 {
		t.Errorf("left %v, %v", left, err)
	}
}
