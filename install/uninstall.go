package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftnet/weft/proto/serving"
)

// Pods tells which pods on this node still have Weft's interfaces, each as namespace/name.
type Pods func(ctx context.Context) ([]string, error)

// errLeft means that not all was removed; what was left, and why, has been said.
var errLeft = errors.New("not all is removed")

// Uninstall removes the configuration, so that no pod is wired by Weft any more, waits until the last one is gone, whose
// deletion needs the programs, and removes those. Configurations that were put aside have their names again. What is not Weft's is left, and so is the agent's state. Each removal is
// a line on out, and so is each thing that is left.
func Uninstall(ctx context.Context, o Options, pods Pods, out io.Writer) error {
	u := &uninstaller{installer: newInstaller(o, slog.New(slog.DiscardHandler), out)}
	if err := mark(ctx, o.marker()); err != nil {
		return err
	}
	if err := errors.Join(u.removeConf(), u.reduce(ctx), u.bringBack(ctx)); err != nil {
		return err
	}
	if err := u.awaitLast(ctx, pods); err != nil {
		u.say("left %s and %s: %v", o.installed(program), o.installed(link), err)
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	if err := errors.Join(u.removeLink(), u.removeProgram(ctx), u.removeMark()); err != nil {
		return err
	}
	u.say("left the state of the agent, by default /var/lib/weft: it is what a new installation goes on with")
	return nil
}

// uninstaller is an installer that goes backwards.
type uninstaller struct {
	*installer
}

func (u *uninstaller) say(format string, args ...any) {
	_, _ = fmt.Fprintf(u.out, format+"\n", args...) // output is best effort
}

// removeConf removes the list that is Weft's own, by its name and its first plugin.
func (u *uninstaller) removeConf() error {
	path := u.conf()
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the configuration: %w", err)
	}
	if !isOwnList(raw) {
		u.say("left %s: it is not Weft's own list", path)
		return nil
	}
	return u.remove(path)
}

func isOwnList(raw []byte) bool {
	l, err := parseList(raw)
	return err == nil && l.name == network && len(l.plugins) > 0 && typeOf(l.plugins[0]) == program
}

// reduce takes Weft's object out of another CNI's list.
func (u *uninstaller) reduce(ctx context.Context) error {
	if u.Extend == "" {
		return nil
	}
	before, err := os.ReadFile(u.Extend)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the list of the other CNI: %w", err)
	}
	after, changed, err := reduced(before)
	if err != nil {
		return fmt.Errorf("%s: %w", u.Extend, err)
	}
	if !changed {
		return nil
	}
	if err := u.replace(ctx, before, after); err != nil {
		return err
	}
	u.say("removed Weft's object from %s", u.Extend)
	return nil
}

// awaitLast waits until no pod needs the programs; the error names those that do.
func (u *uninstaller) awaitLast(ctx context.Context, pods Pods) error {
	for _, path := range neighbours(u.ConfDir) {
		if callsWeft(path) {
			return fmt.Errorf("%s calls them; remove Weft's object from it, with --extend %s where it is a list", path, path)
		}
	}
	if u.Force {
		return nil
	}
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	end := time.After(u.Wait)
	for {
		err := u.lastIsGone(ctx, pods)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-end:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// shown is how many pods an error names.
const shown = 3

func (u *uninstaller) lastIsGone(ctx context.Context, pods Pods) error {
	left, err := pods(ctx)
	if err != nil {
		return fmt.Errorf("whether pods need them is not known: %w; with --force they are removed all the same", err)
	}
	if len(left) == 0 {
		return nil
	}
	names := strings.Join(left[:min(shown, len(left))], ", ")
	if len(left) > shown {
		names += ", ..."
	}
	return fmt.Errorf("%d pods need them to be deleted (%s): drain the node and uninstall again, or --wait; --force leaves those pods stuck", len(left), names)
}

func (u *uninstaller) removeLink() error {
	path := u.installed(link)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if target, _ := os.Readlink(path); filepath.Base(target) != program { // what is no link has no target
		u.say("left %s: it is not Weft's link", path)
		return nil
	}
	return u.remove(path)
}

// ours begins what each program of Weft says of its version.
const ours = "weft "

// removeProgram removes weft-cni of whatever build, if it is one.
func (u *uninstaller) removeProgram(ctx context.Context) error {
	path := u.installed(program)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the program: %w", err)
	}
	if !saysWeft(ctx, path) && !u.isOfThisImage(raw) {
		u.say("left %s: it does not say that it is Weft's", path)
		return nil
	}
	return u.remove(path)
}

// removeMark removes the record of when the agent last served. A running agent writes it again.
func (u *uninstaller) removeMark() error {
	path := serving.File(u.Socket)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return u.remove(path)
}

func saysWeft(ctx context.Context, path string) bool {
	said, err := plugin{path}.version(ctx)
	return err == nil && strings.HasPrefix(said, ours)
}

// isOfThisImage reports whether these are the bytes of the program beside this one, which may not run here.
func (u *uninstaller) isOfThisImage(raw []byte) bool {
	return u.load() == nil && bytes.Equal(u.content, raw)
}

func (u *uninstaller) remove(path string) error {
	u.reached("removing " + filepath.Base(path))
	if err := gone(os.Remove(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	u.say("removed %s", path)
	return syncDir(filepath.Dir(path))
}
