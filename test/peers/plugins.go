package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pluginsPackage is the Debian package with the CNI project's plugins; some of them execute iptables.
const pluginsPackage = "containernetworking-plugins"

// distributions are the directories of plugins in distributions.
var distributions = []string{"/usr/lib/cni", "/opt/cni/bin"}

// usual are plugins that every plugin directory has.
var usual = []string{"bridge", "host-local"}

// Plugins are third-party CNI plugins.
type Plugins struct {
	Dir string
	// Search is their PATH, because some execute iptables.
	Search string
}

// FindPlugins searches CNI_PLUGINS_DIR, the directories of distributions, and the cache.
func FindPlugins() (Plugins, error) {
	dirs := distributions
	if dir := os.Getenv(PluginsVariable); dir != "" {
		dirs = []string{dir}
	}
	if !mayBeInstalled() {
		dirs = nil
	}
	root := unpackedRoot("plugins")
	if root != "" {
		dirs = append(append([]string{}, dirs...), filepath.Join(root, "usr/lib/cni"))
	}
	for _, dir := range dirs {
		if hasPlugins(dir) {
			return Plugins{Dir: dir, Search: search(root)}, nil
		}
	}
	return Plugins{}, fmt.Errorf("CNI plugins (Debian: %s): %w", pluginsPackage, ErrNone)
}

func hasPlugins(dir string) bool {
	for _, name := range usual {
		if !isProgram(filepath.Join(dir, name)) {
			return false
		}
	}
	return true
}

// system are directories that the PATH of an unprivileged user may lack.
var system = []string{"/usr/sbin", "/sbin"}

// search returns PATH with iptables, preferably the machine's.
func search(root string) string {
	path := os.Getenv("PATH")
	if mayBeInstalled() {
		if _, err := exec.LookPath("iptables"); err == nil {
			return path
		}
		for _, dir := range system {
			if isProgram(filepath.Join(dir, "iptables")) {
				return path + ":" + dir
			}
		}
	}
	if root == "" {
		return path
	}
	return wrappers(root) + ":" + path
}

// wrappers is the directory of wrappers for unpacked programs.
func wrappers(root string) string { return filepath.Join(root, "wrappers") }

func pluginPackages(context.Context, *apt) ([]string, error) {
	return []string{pluginsPackage, "iptables"}, nil
}

// wrapper runs an unpacked program of the distribution, selected by the wrapper's own name.
const wrapper = `#!/bin/sh
root=%q
export LD_LIBRARY_PATH=%q XTABLES_LIBDIR=%q
exec "$root/usr/sbin/xtables-nft-multi" "${0##*/}" "$@"
`

// wrapTables writes wrappers for iptables, which has the path of its extensions compiled in. home is the final place of
// the packages below root.
func wrapTables(root, home string) error {
	if !isProgram(filepath.Join(root, "usr/sbin/xtables-nft-multi")) {
		return nil // this peer has no iptables
	}
	if err := os.Mkdir(wrappers(root), 0o755); err != nil {
		return fmt.Errorf("wrap iptables: %w", err)
	}
	var search, extensions []string
	for _, dir := range libraries(root) {
		dir = home + strings.TrimPrefix(dir, root)
		search = append(search, dir)
		extensions = append(extensions, filepath.Join(dir, "xtables"))
	}
	text := fmt.Sprintf(wrapper, home, strings.Join(search, ":"), strings.Join(extensions, ":"))
	for _, name := range []string{
		"iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore",
	} {
		if err := os.WriteFile(filepath.Join(wrappers(root), name), []byte(text), 0o755); err != nil {
			return fmt.Errorf("wrap iptables: %w", err)
		}
	}
	return nil
}
