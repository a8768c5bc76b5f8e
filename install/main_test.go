package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// Output of --version of the two builds of the plugin.
const (
	thisBuild = "weft v0.1.0-dev"
	nextBuild = "weft v9.9.9"
)

// built is a directory with both builds of the plugin: this.d/weft-cni and next.d/weft-cni.
var built string

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(runVictim())
	}
	os.Exit(run(m))
}

// run builds the plugins, runs the tests, and checks for leaked goroutines.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weft-install")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built = dir
	for name, flags := range map[string]string{
		"this.d": "",
		"next.d": "-X github.com/weftnet/weft/internal/version.version=v9.9.9",
	} {
		build := exec.Command("go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w "+flags,
			"-o", filepath.Join(dir, name, program), "../cmd/weft-cni")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build weft-cni: %v\n%s", err, out)
			return 1
		}
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
