// Package peers finds the third-party programs of interoperability tests. Missing ones are unpacked into a cache, not
// installed.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Environment variables: where peers are searched, and the paths of installed ones.
const (
	// Variable holds Installed, Cached or nothing (both, the installed ones first).
	Variable  = "WEFT_PEERS"
	Installed = "installed" // download nothing
	Cached    = "cache"     // ignore installed peers

	DPDKVariable    = "WEFT_DPDK_DIR"   // directory with unpacked DPDK packages
	PluginsVariable = "CNI_PLUGINS_DIR" // directory of third-party CNI plugins
)

// ErrNone means that a peer is neither installed nor in the cache.
var ErrNone = errors.New("it is not installed, and `make peers` could not fetch it")

// Program is a program with the arguments and environment that it needs.
type Program struct {
	Path        string
	Arguments   []string // precede the caller's
	Environment []string // extends the caller's
}

// Command returns the program's command with the caller's environment and arguments.
func (p Program) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, append(append([]string{}, p.Arguments...), arguments...)...)
	cmd.Env = append(os.Environ(), p.Environment...)
	return cmd
}

// Cache returns the user's directory of unpacked peers.
func Cache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache of peers: %w", err)
	}
	return filepath.Join(dir, "weft", "peers"), nil
}

// peer is a third-party program with Debian packages.
type peer struct {
	name string // directory in the cache, and word in WEFT_REQUIRE
	what string
	find func() error
	// packages returns the needed Debian packages; it may query apt.
	packages func(context.Context, *apt) ([]string, error)
}

// all are the peers of the tests.
var all = []peer{
	{"dpdk", "DPDK's testpmd with its memif driver", func() error { _, err := Testpmd(); return err }, testpmdPackages},
	{
		"plugins", "the CNI plugins bridge, portmap and others", func() error { _, err := FindPlugins(); return err },
		pluginPackages,
	},
}

// unpackedRoot returns the directory with a peer's unpacked packages; "" if there is none or it must not be used.
func unpackedRoot(name string) string {
	cache, err := Cache()
	if err != nil || os.Getenv(Variable) == Installed {
		return ""
	}
	root := filepath.Join(cache, name, "root")
	if _, err := os.Stat(root); err != nil {
		return ""
	}
	return root
}

// mayBeInstalled reports whether installed peers may be used.
func mayBeInstalled() bool { return os.Getenv(Variable) != Cached }

// libraries returns the directories of shared libraries below root.
func libraries(root string) []string {
	var found []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		dirs, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is well formed
		found = append(found, dirs...)
	}
	return found
}

// isProgram reports whether path is executable.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
