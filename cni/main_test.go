package cni

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// binaries is the directory of the weft-cni that TestMain builds.
var binaries string

func TestMain(m *testing.M) {
	testscript.Main(run{m}, map[string]func(){"weft-cni-with-panic": panicInAdd})
}

// run builds the plugin, runs the tests, and checks for leaked goroutines.
type run struct{ *testing.M }

func (r run) Run() int {
	dir, err := os.MkdirTemp("", "weft-cni")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = dir
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-o",
		filepath.Join(dir, "weft-cni"), "../cmd/weft-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build weft-cni: %v\n%s", err, out)
		return 1
	}
	if err := os.Symlink("weft-cni", filepath.Join(dir, "weft-ipam")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(PathsVariable, PathsFromConfiguration); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := r.M.Run()
	// lumberjack never ends this goroutine; the plugin is a short process
	if err := goleak.Find(goleak.IgnoreTopFunction(
		"gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun")); err != nil &&
		code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// panicInAdd is the plugin with an ADD that panics.
func panicInAdd() {
	p := newPlugin("test", role{})
	os.Exit(serve(p, skel.CNIFuncs{Add: p.verb(func(*call) error { panic("index out of range") })}))
}
