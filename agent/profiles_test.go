package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

func TestOperatorGetsProfilesOfTheAgent(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{})
	for kind, more := range map[string][]string{"cpu": {"--duration", "1s"}, "heap": nil, "goroutine": nil} {
		file := filepath.Join(t.TempDir(), kind)
		out, err := l.Weftctl(t.Context(), append([]string{"profile", kind, "-w", file}, more...)...)
		if err != nil {
			t.Errorf("%s: %v: %s", kind, err, out)
			continue
		}
		profile, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(profile, []byte{0x1f, 0x8b}) {
			t.Errorf("%s: %d bytes, %v", kind, len(profile), err)
		}
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(l.Socket()), "debug.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
