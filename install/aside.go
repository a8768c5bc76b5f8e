package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// asideEnding is what a configuration of others has at its end while it is put aside. No runtime reads such a file.
const asideEnding = ".weft-aside"

// putAside renames the configurations of others, once Weft's is there. Those that call Weft are left: nobody would be well
// served by them when they came back.
func (i *installer) putAside(ctx context.Context) error {
	if !i.Exclusive {
		return nil
	}
	var others []string
	for _, path := range neighbours(i.ConfDir) {
		if path != i.conf() && !callsWeft(path) {
			others = append(others, path)
		}
	}
	if len(others) == 0 {
		return nil
	}
	err := locked(ctx, i.ConfDir, func() error {
		var errs []error
		for _, path := range others {
			i.reached("putting aside " + filepath.Base(path))
			if err := gone(os.Rename(path, path+asideEnding)); err != nil {
				errs = append(errs, err)
				continue
			}
			i.log.Info("configuration of another CNI put aside", "file", path, "as", path+asideEnding)
		}
		return errors.Join(append(errs, syncDir(i.ConfDir))...)
	})
	if err != nil {
		return fmt.Errorf("put configurations of others aside: %w", err)
	}
	return nil
}

// bringBack gives the configurations of others their names again. Where there is a new one of that name, what was put
// aside is out of date, and left.
func (u *uninstaller) bringBack(ctx context.Context) error {
	aside, _ := filepath.Glob(filepath.Join(u.ConfDir, "*"+asideEnding)) // a directory's name is no bad pattern
	if len(aside) == 0 {
		return nil
	}
	err := locked(ctx, u.ConfDir, func() error {
		var errs []error
		for _, from := range aside {
			errs = append(errs, u.rename(from, strings.TrimSuffix(from, asideEnding)))
		}
		return errors.Join(append(errs, syncDir(u.ConfDir))...)
	})
	if err != nil {
		return fmt.Errorf("bring configurations of others back: %w", err)
	}
	return nil
}

func (u *uninstaller) rename(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		u.say("left %s: there is %s", from, to)
		return nil
	}
	u.reached("bringing back " + filepath.Base(to))
	if err := os.Rename(from, to); err != nil {
		return gone(err)
	}
	u.say("brought back %s", to)
	return nil
}
