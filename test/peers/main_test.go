package peers

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// emptyMachine sets up a machine without peers, with an empty cache, and with only the given programs in PATH.
func emptyMachine(t *testing.T) (cache, path string) {
	t.Helper()
	home := t.TempDir()
	path = t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "XDG_CACHE_HOME": filepath.Join(home, "cache"), "PATH": path,
		Variable: Cached, DPDKVariable: "", PluginsVariable: "", "LD_LIBRARY_PATH": "",
	} {
		t.Setenv(name, value)
	}
	cache, err := Cache()
	if err != nil {
		t.Fatal(err)
	}
	return cache, path
}

func write(t *testing.T, content string, mode os.FileMode, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return name
}
