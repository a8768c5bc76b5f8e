package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// The plugin, and the symbolic link under which it is an IPAM plugin.
const (
	program = "weft-cni"
	link    = "weft-ipam"
)

// supportedVersions are the CNI versions of weft-cni that a configuration list can have.
var supportedVersions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// settingsFile is beside weft-cni, which reads the settings of the node from it: a network configuration may be a
// tenant's.
const settingsFile = program + ".json"

// nodeSettings is the content of the settings file. Weft's object in a configuration repeats it, for earlier releases
// of weft-cni.
type nodeSettings struct {
	Socket      string `json:"socket"`
	DeleteQueue string `json:"deleteQueue"`
	LogLevel    string `json:"logLevel"`
	LogFile     string `json:"logFile"`
}

// ensureSettings writes the settings of the node.
func (i *installer) ensureSettings(ctx context.Context) error {
	content, err := render(nodeSettings{
		Socket:      i.Socket,
		DeleteQueue: i.DeleteQueue,
		LogLevel:    i.LogLevel,
		LogFile:     i.LogFile,
	})
	if err != nil {
		return err
	}
	f := file{path: i.binary(settingsFile), content: content, mode: 0o644}
	if i.isKept(f) {
		return nil
	}
	if err := i.put(ctx, f, nil); err != nil {
		return err
	}
	i.log.Info("settings of the plugin installed", "file", f.path)
	return nil
}

// ensurePrograms installs weft-cni and its link, after the settings that it reads. It never replaces a working program
// by one that fails its test.
func (i *installer) ensurePrograms(ctx context.Context) error {
	if err := i.ensureSettings(ctx); err != nil {
		return err
	}
	f := file{path: i.binary(program), content: i.content, mode: 0o755}
	if !i.isKept(f) {
		if err := i.put(ctx, f, i.test); err != nil {
			return err
		}
		i.log.Info("program installed", "file", f.path, "version", i.build)
	}
	return i.ensureLink(ctx)
}

// ensureLink creates the link. It keeps another file of that name: it belongs to the administrator.
func (i *installer) ensureLink(ctx context.Context) error {
	path := i.binary(link)
	target, err := os.Readlink(path)
	if target == program {
		return nil
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		if i.isNew(path, "foreign") {
			i.log.Warn("IPAM plugin not installed: remove the foreign file", "file", path)
		}
		return nil
	}
	err = locked(ctx, i.BinDir, func() error {
		i.reached("link missing")
		if err := os.Symlink(program, path); err != nil {
			return err
		}
		i.reached("linked")
		return syncDir(i.BinDir)
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", path, err)
	}
	i.log.Info("link installed", "file", path, "target", program)
	return nil
}

// test runs the draft in its final directory. It fails if the draft does not run there, is of another build, or does
// not support the CNI versions of the configuration.
func (i *installer) test(ctx context.Context, draft string) error {
	p := plugin{draft}
	build, err := p.build(ctx)
	if err != nil {
		return fmt.Errorf("weft-cni does not run on this node: %w", err)
	}
	if build != i.build {
		return fmt.Errorf("weft-cni is of build %q, weft-agent of %q: install both from one image", build, i.build)
	}
	versions, err := p.versions(ctx)
	if err != nil {
		return fmt.Errorf("weft-cni does not run on this node: %w", err)
	}
	for _, v := range i.Versions {
		if !slices.Contains(versions, v) {
			return fmt.Errorf("weft-cni does not support CNI %s, only %s: change --cni-versions", v,
				strings.Join(versions, ", "))
		}
	}
	return nil
}
