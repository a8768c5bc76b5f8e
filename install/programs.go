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

// The program, and the link to it by whose name it is an IPAM plugin.
const (
	program = "weft-cni"
	link    = "weft-ipam"
)

// spoken are the versions of CNI that weft-cni speaks, as far as a list can name them.
var spoken = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// ensurePrograms brings weft-cni and its link into the directory of plugins. A version that does not run here never
// takes the place of one that does.
func (i *installer) ensurePrograms(ctx context.Context) error {
	f := file{path: i.installed(program), content: i.content, mode: 0o755}
	if !i.isLeft(f) {
		if err := i.put(ctx, f, i.selfTest); err != nil {
			return err
		}
		i.log.Info("program installed", "file", f.path, "version", i.build)
	}
	return i.ensureLink(ctx)
}

// ensureLink makes the link; another file of that name belongs to the administrator.
func (i *installer) ensureLink(ctx context.Context) error {
	path := i.installed(link)
	there, err := os.Readlink(path)
	if there == program {
		return nil
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		if i.isNew(path, "foreign") {
			i.log.Warn("a file that is not Weft's link is left as it is; remove it to have the IPAM plugin", "file", path)
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

// selfTest runs the draft where it will be: does it run on this machine, is it of this build, does it speak what the
// configuration will offer?
func (i *installer) selfTest(ctx context.Context, draft string) error {
	p := plugin{draft}
	said, err := p.version(ctx)
	if err != nil {
		return fmt.Errorf("weft-cni does not run here: %w", err)
	}
	if said != i.build {
		return fmt.Errorf("weft-cni says %q and this is %q: install both from one image", said, i.build)
	}
	speaks, err := p.speaks(ctx)
	if err != nil {
		return fmt.Errorf("weft-cni does not run here: %w", err)
	}
	for _, v := range i.Versions {
		if !slices.Contains(speaks, v) {
			return fmt.Errorf("weft-cni does not speak CNI %s, only %s: see --cni-versions", v, strings.Join(speaks, ", "))
		}
	}
	return nil
}
