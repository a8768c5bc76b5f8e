package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// programs are weft-cni, its link and its settings.
type programs struct {
	*Options
	build string // output of --version of each program of this build
	log   *notices
	files *files

	content []byte // of the weft-cni to install
}

// load reads the weft-cni to install into memory: the source may be an image that is unmounted later.
func (p *programs) load() error {
	if p.Source == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the directory of this program: %w", err)
		}
		p.Source = filepath.Dir(self)
	}
	content, err := os.ReadFile(filepath.Join(p.Source, program))
	if err != nil {
		return fmt.Errorf("read the program to install: %w; set --source to the directory of weft-cni", err)
	}
	p.content = content
	return nil
}

// ensureSettings writes the settings of the node.
func (p *programs) ensureSettings(ctx context.Context) error {
	content, err := render(p.NodeSettings)
	if err != nil {
		return err
	}
	f := file{path: p.binary(settingsFile), content: content, mode: 0o644}
	if p.files.isKept(f) {
		return nil
	}
	if err := p.files.put(ctx, f, nil); err != nil {
		return err
	}
	p.log.Info("settings of the plugin installed", "file", f.path)
	return nil
}

// ensure installs weft-cni and its link, after the settings that it reads. It never replaces a working program
// by one that fails its test.
func (p *programs) ensure(ctx context.Context) error {
	if err := p.ensureSettings(ctx); err != nil {
		return err
	}
	f := file{path: p.binary(program), content: p.content, mode: 0o755}
	if !p.files.isKept(f) {
		if err := p.files.put(ctx, f, p.test); err != nil {
			return err
		}
		p.log.Info("program installed", "file", f.path, "version", p.build)
	}
	return p.ensureLink(ctx)
}

// ensureLink creates the link. It keeps another file of that name: it belongs to the administrator.
func (p *programs) ensureLink(ctx context.Context) error {
	path := p.binary(link)
	target, err := os.Readlink(path)
	if target == program {
		return nil
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		if p.log.isNew(path, "foreign") {
			p.log.Warn("IPAM plugin not installed: remove the foreign file", "file", path)
		}
		return nil
	}
	err = locked(ctx, p.BinDir, func() error {
		p.files.reached("link missing")
		if err := os.Symlink(program, path); err != nil {
			return err
		}
		p.files.reached("linked")
		return syncDir(p.BinDir)
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", path, err)
	}
	p.log.Info("link installed", "file", path, "target", program)
	return nil
}

// test runs the draft in its final directory. It fails if the draft does not run there, is of another build, or does
// not support the CNI versions of the configuration.
func (p *programs) test(ctx context.Context, draft string) error {
	tested := plugin{draft}
	build, err := tested.build(ctx)
	if err != nil {
		return fmt.Errorf("weft-cni does not run on this node: %w", err)
	}
	if build != p.build {
		return fmt.Errorf("weft-cni is of build %q, weft-agent of %q: install both from one image", build, p.build)
	}
	versions, err := tested.versions(ctx)
	if err != nil {
		return fmt.Errorf("weft-cni does not run on this node: %w", err)
	}
	for _, v := range p.Versions {
		if !slices.Contains(versions, v) {
			return fmt.Errorf("weft-cni does not support CNI %s, only %s: change --cni-versions", v,
				strings.Join(versions, ", "))
		}
	}
	return nil
}
