package cni

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The plugin's process is on every pod's way: these are what it may cost.
const (
	mostBytes = 20 << 20
	mostStart = 20 * time.Millisecond
)

// rows: MEM-06, AWS-41
func TestThePluginStaysSmall(t *testing.T) {
	info, err := os.Stat(filepath.Join(binaries, "weft-cni"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("the binary has %d bytes, at most %d are wanted", info.Size(), mostBytes)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "grpcnotrace", "-deps", "../cmd/weft-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, unwanted := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/spf13/", "go.fd.io/", "/libcni", "github.com/prometheus/"} {
			if strings.Contains(dep, unwanted) {
				t.Errorf("the plugin contains %s", strings.TrimSpace(dep))
			}
		}
	}
}

// TestThePluginStartsFast takes the fastest of many starts, as the machine may be busy.
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
	if fastest > mostStart {
		t.Errorf("the fastest of 50 starts took %s, at most %s are wanted", fastest, mostStart)
	}
}
