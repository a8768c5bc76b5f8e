package cni

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each pod starts the plugin several times, so size and start time are limited.
const (
	maxBytes = 20 << 20
	maxStart = 20 * time.Millisecond
)

// rows: MEM-06, AWS-41
func TestTheBinaryIsSmall(t *testing.T) {
	info, err := os.Stat(filepath.Join(binaries, "weft-cni"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBytes {
		t.Errorf("the binary has %d bytes, at most %d are allowed", info.Size(), maxBytes)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "grpcnotrace", "-deps", "../cmd/weft-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, unwanted := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/spf13/", "go.fd.io/", "/libcni", "github.com/prometheus/", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"} {
			if strings.Contains(dep, unwanted) {
				t.Errorf("the plugin contains %s", strings.TrimSpace(dep))
			}
		}
	}
}

// TestThePluginStartsFast measures the fastest of many starts, because the machine may be busy.
// rows: MEM-06
func TestThePluginStartsFast(t *testing.T) {
	fastest := time.Hour
	for range 50 {
		cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "weft-cni"))
		cmd.Env = []string{"CNI_COMMAND=VERSION"}
		began := time.Now()
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest > maxStart {
		t.Errorf("the fastest of 50 starts took %s, at most %s is allowed", fastest, maxStart)
	}
}
