// Package peers finds the third-party programs of interoperability tests. Missing ones are unpacked into a cache, not installed.
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
	// Variable holds Installed, Cached or nothing: both, the installed ones first.
	Variable  = "WEFT_PEERS"
	Installed = "installed" // nothing is downloaded
	Cached    = "cache"     // as if nothing were installed

	DPDKVariable    = "WEFT_DPDK_DIR"   // where DPDK's packages were unpacked
	PluginsVariable = "CNI_PLUGINS_DIR" // the directory of other people's CNI plugins
)

// ErrNone says that a peer is neither installed nor in the cache.
var ErrNone = errors.New("it is not installed, and `make peers` did not get it")

// Program is one with what it needs to run.
type Program struct {
	Path        string
	Arguments   []string // these come first
	Environment []string // this comes beside the caller's
}

// Command is the program with the caller's environment and arguments.
func (p Program) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, append(append([]string{}, p.Arguments...), arguments...)...)
	cmd.Env = append(os.Environ(), p.Environment...)
	return cmd
}

// Cache is the directory in which peers are unpacked: the user's.
func Cache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache of peers: %w", err)
	}
	return filepath.Join(dir, "weft", "peers"), nil
}

// peer is one that Debian has packages of.
type peer struct {
	name string // of the directory in the cache, and in WEFT_REQUIRE
	what string
	find func() error
	// packages are what is needed of the distribution, which the callee may ask.
	packages func(context.Context, *apt) ([]string, error)
}

// all are the peers that the tests know.
var all = []peer{
	{"dpdk", "DPDK's testpmd with its memif driver", func() error { _, err := Testpmd(); return err }, testpmdPackages},
	{"plugins", "the CNI plugins bridge, portmap and others", func() error { _, err := FindPlugins(); return err }, pluginPackages},
}

// unpackedRoot is where the packages of a peer were unpacked; "" if they were not, or are not to be used.
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

// mayBeInstalled says whether to look at the machine at all.
func mayBeInstalled() bool { return os.Getenv(Variable) != Cached }

// libraries are the directories of shared libraries below root.
func libraries(root string) []string {
	var found []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		dirs, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is well formed
		found = append(found, dirs...)
	}
	return found
}

// isProgram says whether path can be executed.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
