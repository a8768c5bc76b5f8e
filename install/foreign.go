package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// confExtensions are the extensions of files that runtimes read as configurations.
var confExtensions = []string{".conf", ".conflist", ".json"}

// asideExtension is appended to the names of foreign configurations that are set aside. Runtimes do not read such
// files.
const asideExtension = ".weft-aside"

// configurations returns the configurations of a directory in the order in which runtimes read them.
func configurations(dir string) []string {
	entries, _ := os.ReadDir(dir) // sorted; a missing directory has no configurations
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(confExtensions, filepath.Ext(e.Name())) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// warnOfOthers logs configurations that runtimes prefer to the target, and further ones that call Weft.
func (n *notices) warnOfOthers(target string) {
	for _, path := range configurations(filepath.Dir(target)) {
		switch {
		case path == target:
		case path < target && n.isNew(path, "before"):
			n.Warn("runtimes use another configuration: remove it, or rename it so that it sorts after Weft's",
				"file", path, "before", target)
		case path > target && callsWeft(path) && n.isNew(path, "twice"):
			n.Warn("another configuration also calls Weft: remove it", "file", path)
		}
	}
}

// callsWeft reports whether a configuration runs a program of Weft, as main plugin or as IPAM plugin.
func callsWeft(path string) bool {
	type caller struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var conf struct {
		caller
		Plugins []caller `json:"plugins"`
	}
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &conf) != nil {
		return false
	}
	return slices.ContainsFunc(append(conf.Plugins, conf.caller), func(c caller) bool {
		return c.Type == program || c.Type == link || c.IPAM.Type == link
	})
}

// setAside renames foreign configurations after Weft's own is written. It skips those that call Weft: an uninstall
// would restore them without the programs that they need.
func (l *ownList) setAside(ctx context.Context) error {
	if !l.Exclusive {
		return nil
	}
	foreign := slices.DeleteFunc(configurations(l.ConfDir), func(path string) bool {
		return path == l.conf() || callsWeft(path)
	})
	if len(foreign) == 0 {
		return nil
	}
	err := locked(ctx, l.ConfDir, func() error {
		var errs []error
		for _, path := range foreign {
			l.files.reached("setting aside " + filepath.Base(path))
			if err := ignoreNotExist(os.Rename(path, path+asideExtension)); err != nil {
				errs = append(errs, err)
				continue
			}
			l.log.Info("foreign configuration set aside", "file", path, "as", path+asideExtension)
		}
		return errors.Join(append(errs, syncDir(l.ConfDir))...)
	})
	if err != nil {
		return fmt.Errorf("set foreign configurations aside: %w", err)
	}
	return nil
}

// restoreForeign restores the names of foreign configurations. It leaves one whose owner has written a new file
// meanwhile.
func (u *uninstaller) restoreForeign(ctx context.Context) error {
	aside, _ := filepath.Glob(filepath.Join(u.ConfDir, "*"+asideExtension)) // the pattern is valid
	if len(aside) == 0 {
		return nil
	}
	err := locked(ctx, u.ConfDir, func() error {
		var errs []error
		for _, from := range aside {
			errs = append(errs, u.rename(from, strings.TrimSuffix(from, asideExtension)))
		}
		return errors.Join(append(errs, syncDir(u.ConfDir))...)
	})
	if err != nil {
		return fmt.Errorf("restore foreign configurations: %w", err)
	}
	return nil
}

func (u *uninstaller) rename(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		u.say("left %s: %s exists", from, to)
		return nil
	}
	u.files.reached("restoring " + filepath.Base(to))
	if err := os.Rename(from, to); err != nil {
		return ignoreNotExist(err)
	}
	u.say("restored %s", to)
	return nil
}
