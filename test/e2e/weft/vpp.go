package weft

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/e2e/image"
)

// PrefixVariable names the environment variable that holds the prefix of a VPP installation (PREFIX/bin/vpp). When it
// is set, that VPP is the dataplane of the nodes, by the manifest weft-vpp.yaml, and not weft-vswitch.
const PrefixVariable = "WEFT_VPP"

// VPPImage is the name that weft-vpp.yaml gives to the image of VPP, whatever its version.
const VPPImage = "localhost/vpp:25.10"

// OnVPP reports whether the nodes' dataplane is VPP.
func OnVPP() bool { return os.Getenv(PrefixVariable) != "" }

// HasTaps reports whether the nodes' dataplane can create taps: VPP needs vhost-net for them.
func HasTaps() bool {
	return !OnVPP() || unix.Access("/dev/vhost-net", unix.R_OK|unix.W_OK) == nil
}

// CustomInterfaces returns a value of the annotation contivpp.io/custom-if, with veths instead of taps if the dataplane
// cannot create taps.
func CustomInterfaces(value string) string {
	if HasTaps() {
		return value
	}
	return strings.ReplaceAll(value, "/tap", "/veth")
}

// Crowd returns the number of pods for a test that wants n: n, or few if the dataplane is a VPP without taps, because a
// thread of VPP hangs with 16 veths that have unread packets (docs/vpp.md).
func Crowd(n, few int) int {
	if HasTaps() {
		return n
	}
	return min(n, few)
}

// vppImage returns the image of the installed VPP with all libraries that its programs and plugins need.
func vppImage(ctx context.Context, prefix string) (image.Image, error) {
	plugins, err := filepath.Glob(filepath.Join(prefix, "lib", "*", "vpp_plugins", "*_plugin.so"))
	if err != nil || len(plugins) == 0 {
		return image.Image{}, fmt.Errorf("%s=%s: no lib/*/vpp_plugins there: want the prefix of a VPP installation",
			PrefixVariable, prefix)
	}
	libraries := filepath.Dir(filepath.Dir(plugins[0]))
	files := map[string]string{}
	for _, path := range append(plugins, filepath.Join(prefix, "bin", "vpp"), filepath.Join(prefix, "bin", "vppctl")) {
		files[inside(prefix, path)] = path
		needed, err := librariesOf(ctx, path, libraries)
		if err != nil {
			return image.Image{}, err
		}
		for _, library := range needed {
			files[inside(prefix, library)] = library
		}
	}
	return image.Image{Name: VPPImage, Files: files}, nil
}

// inside returns the path in the image of a file of the installation, or of this machine: the prefix of the
// installation is /usr there.
func inside(prefix, path string) string {
	if below, err := filepath.Rel(prefix, path); err == nil && filepath.IsLocal(below) {
		return filepath.Join("/usr", below)
	}
	return path
}

// librariesOf returns the shared libraries of a program or library, and the loader.
func librariesOf(ctx context.Context, path, search string) (found []string, err error) {
	cmd := exec.CommandContext(ctx, "ldd", path)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+search)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s: %w", path, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		name, rest, isFound := strings.Cut(lines.Text(), "=>")
		if !isFound {
			rest = name // the loader, or the vDSO
		}
		if words := strings.Fields(rest); len(words) > 0 && strings.HasPrefix(words[0], "/") {
			found = append(found, words[0])
		} else if strings.Contains(rest, "not found") {
			return nil, fmt.Errorf("%s needs %s, which is missing", path, strings.TrimSpace(name))
		}
	}
	return found, nil
}
