package cni

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Each pod starts the plugin several times, so its size and what it does before main are limited.
const (
	maxBytes           = 20 << 20
	maxInitAllocations = 2000
)

func TestTheBinaryIsSmall(t *testing.T) {
	info, err := os.Stat(filepath.Join(binaries, "weft-cni"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBytes {
		t.Errorf("the binary has %d bytes, at most %d are allowed", info.Size(), maxBytes)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "grpcnotrace", "-deps",
		"../cmd/weft-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, unwanted := range []string{
			"k8s.io/", "sigs.k8s.io/", "github.com/spf13/", "go.fd.io/", "/libcni", "github.com/prometheus/",
			"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters",
		} {
			if strings.Contains(dep, unwanted) {
				t.Errorf("the plugin contains %s", strings.TrimSpace(dep))
			}
		}
	}
}

// TestThePluginStartsFast measures the work before main, which is the same on a busy machine: the allocations of all
// packages' init, as the runtime reports them.
func TestThePluginStartsFast(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "weft-cni"))
	cmd.Env = []string{"CNI_COMMAND=VERSION", "GODEBUG=inittrace=1"}
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	packages := 0
	allocations := 0
	for line := range strings.Lines(trace.String()) {
		if !strings.HasPrefix(line, "init ") {
			continue
		}
		_, counted, _ := strings.Cut(line, " bytes, ")
		number, _, _ := strings.Cut(counted, " allocs")
		allocated, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%q: %s", line, err)
		}
		packages++
		allocations += allocated
	}
	if packages == 0 {
		t.Fatalf("the runtime reported no package: %s", trace.String())
	}
	if allocations > maxInitAllocations {
		t.Errorf("the init of %d packages allocates %d times, at most %d are allowed:\n%s",
			packages, allocations, maxInitAllocations, trace.String())
	}
}
