package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestABuildWithoutModulesSaysWhatToRun(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", t.TempDir(), "github.com/weftnet/weft/cmd/weft-cni")
	cmd.Dir = root()
	cmd.Env = append(os.Environ(), "GOMODCACHE="+t.TempDir(), "GOPROXY=http://127.0.0.1:1",
		"GOFLAGS=-mod=readonly -modcacherw", "GONOSUMDB=*", "GOTOOLCHAIN=local")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("it succeeded without modules")
	}
	if text := Explain(err, out); !strings.Contains(text, "run make modules once") {
		t.Errorf("%s", text)
	}
}

func TestAllProgramsHaveTheSameVersion(t *testing.T) {
	dir := Build(t)
	var first string
	for _, name := range []string{"weft-agent", "weft-cni", "weft-vswitch", "weftctl"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), "--version").Output()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		output := strings.TrimSpace(string(out))
		if first == "" {
			first = output
		}
		if output != first || !strings.HasPrefix(output, "weft v") {
			t.Errorf("%s prints %q, the others %q", name, output, first)
		}
	}
	plugin := exec.CommandContext(t.Context(), filepath.Join(dir, "weft-cni")) // without an agent
	plugin.Env = append(os.Environ(), "CNI_COMMAND=VERSION")
	if out, err := plugin.Output(); err != nil || !strings.Contains(string(out), `"1.1.0"`) {
		t.Errorf("VERSION: %s (%v)", out, err)
	}
}
