package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryPinRequiresItsModuleAndPrograms(t *testing.T) {
	for _, p := range pinned {
		file, err := os.ReadFile(filepath.Join("..", "pins", p.folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.version(file); err != nil {
			t.Error(err)
		}
		for _, pkg := range p.programs {
			if !strings.Contains(string(file), pkg+"\n") {
				t.Errorf("%s: %s is not a tool of the pin", p.folder, pkg)
			}
		}
	}
}

func TestChangedPinHasAnotherDirectory(t *testing.T) {
	p := pin{folder: "some", module: "example.org/some"}
	pins := t.TempDir()
	seen := map[string]string{}
	for _, file := range []string{
		"module pin\nrequire example.org/some v1.2.3\n", "module pin\nrequire (\n\texample.org/some v1.2.4\n)\n",
		"module pin\nrequire example.org/some v1.2.3\nrequire example.org/other v1.0.0\n",
	} {
		if err := os.MkdirAll(filepath.Join(pins, "some"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(pins, "some", "go.mod"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		dir, err := p.directory(pins, "cache")
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[dir]; other != "" {
			t.Errorf("%q and %q go to %s", other, file, dir)
		}
		seen[dir] = file
	}
}

func TestPinWithoutItsModuleIsAnError(t *testing.T) {
	if version, err := (pin{folder: "some", module: "example.org/some"}).version([]byte(
		"require example.org/something v1.0.0\n")); err == nil {
		t.Errorf("got %s", version)
	}
}

func TestOutputIsTheNameByGoBuild(t *testing.T) {
	for pkg, want := range map[string]string{
		"example.org/some/cmd/program": "program", "example.org/some/server/v3": "server",
		"example.org/some/vendored": "vendored", "example.org/some/v": "v",
	} {
		if got := output(pkg); got != want {
			t.Errorf("the program of %s is %s, want %s", pkg, got, want)
		}
	}
}
