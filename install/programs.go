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

// ensurePrograms installs weft-cni and its link. It never replaces a working program by one that fails its test.
func (i *installer) ensurePrograms(ctx context.Context) error {
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

// test runs the draft in its final directory. It fails if the draft does not run there, is of another build, or does not
// support the CNI versions of the configuration.
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
			return fmt.Errorf("weft-cni does not support CNI %s, only %s: change --cni-versions", v, strings.Join(versions, ", "))
		}
	}
	return nil
}
