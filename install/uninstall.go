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

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/proto/serving"
)

// Pods returns the pods on this node that have interfaces of Weft, each as namespace/name.
type Pods func(ctx context.Context) ([]string, error)

// errIncomplete means that some files were not removed. Lines on the output give their names and the reasons.
var errIncomplete = errors.New("uninstall is incomplete")

// Uninstall removes the configuration, so that runtimes stop calling Weft for new pods, restores foreign
// configurations, waits until the last pod is deleted, which needs the programs, and removes the programs. It keeps
// foreign files and the agent's state. It prints a line to out for each file that it removes or keeps.
func Uninstall(ctx context.Context, o Options, pods Pods, out io.Writer) error {
	u := &uninstaller{installer: newInstaller(o, slog.New(slog.DiscardHandler), out)}
	if err := createMarker(ctx, o.marker()); err != nil {
		return err
	}
	if err := errors.Join(u.removeConf(), u.removeObject(ctx), u.restoreForeign(ctx)); err != nil {
		return err
	}
	if err := u.waitForPods(ctx, pods); err != nil {
		u.say("left %s and %s: %v", o.binary(program), o.binary(link), err)
		return fmt.Errorf("%w: %w", errIncomplete, err)
	}
	if err := errors.Join(u.removeLink(), u.removeProgram(ctx), u.removeSettings(), u.removeServingMark()); err != nil {
		return err
	}
	u.say("left the state of the agent, by default /var/lib/weft: a new installation continues with it")
	return nil
}

// uninstaller removes what an installer installs.
type uninstaller struct {
	*installer
}

func (u *uninstaller) say(format string, args ...any) {
	_, _ = fmt.Fprintf(u.out, format+"\n", args...) // output is best effort
}

// removeConf removes Weft's own list. It keeps a list with another name or first plugin.
func (u *uninstaller) removeConf() error {
	path := u.conf()
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
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

// removeObject removes Weft's object from another CNI's list.
func (u *uninstaller) removeObject(ctx context.Context) error {
	if u.Extend == "" {
		return nil
	}
	before, err := os.ReadFile(u.Extend)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the other CNI's list: %w", err)
	}
	after, changed, err := withoutWeft(before)
	if err != nil {
		return fmt.Errorf("%s: %w", u.Extend, err)
	}
	if !changed {
		return nil
	}
	if err := u.foreign.replace(ctx, before, after); err != nil {
		return err
	}
	u.say("removed Weft's object from %s", u.Extend)
	return nil
}

// waitForPods waits until no pod needs the programs. It fails if pods, or other configurations, still need them.
func (u *uninstaller) waitForPods(ctx context.Context, pods Pods) error {
	for _, path := range configurations(u.ConfDir) {
		if callsWeft(path) {
			return fmt.Errorf("%s calls them: remove Weft's object from it; for a .conflist use --extend %s", path,
				path)
		}
	}
	if u.Force {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, u.Wait)
	defer cancel()
	var err error
	_ = wait.PollUntilContextCancel(limited, retryInterval, true, func(context.Context) (bool, error) {
		err = checkNoPods(ctx, pods)
		return err == nil, nil
	})
	return err
}

// maxNames bounds the pods that an error names.
const maxNames = 3

func checkNoPods(ctx context.Context, pods Pods) error {
	left, err := pods(ctx)
	if err != nil {
		return fmt.Errorf("ask which pods need them: %w; --force removes them without asking", err)
	}
	if len(left) == 0 {
		return nil
	}
	names := strings.Join(left[:min(maxNames, len(left))], ", ")
	if len(left) > maxNames {
		names += ", ..."
	}
	return fmt.Errorf(
		"%d pods need them for their deletion (%s): drain the node and uninstall again, or use --wait; with --force their deletion fails",
		len(left), names)
}

func (u *uninstaller) removeLink() error {
	path := u.binary(link)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if target, _ := os.Readlink(path); filepath.Base(target) != program { // other files have no target
		u.say("left %s: it is not Weft's link", path)
		return nil
	}
	return u.remove(path)
}

// buildPrefix starts the output of --version of each program of Weft.
const buildPrefix = "weft "

// removeProgram removes weft-cni of any build. It keeps a foreign program of that name.
func (u *uninstaller) removeProgram(ctx context.Context) error {
	path := u.binary(program)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if !hasWeftBuild(ctx, path) && !u.isSource(raw) {
		u.say("left %s: it is not Weft's program", path)
		return nil
	}
	return u.remove(path)
}

// removeSettings removes the settings of the plugin, which a foreign program of that name does not have.
func (u *uninstaller) removeSettings() error {
	path := u.binary(settingsFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(u.binary(program)); err == nil {
		u.say("left %s: a program %s is there", path, program)
		return nil
	}
	return u.remove(path)
}

// removeServingMark removes the file with the time when the agent last served. A running agent writes it again.
func (u *uninstaller) removeServingMark() error {
	path := serving.File(u.Socket)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return u.remove(path)
}

func hasWeftBuild(ctx context.Context, path string) bool {
	build, err := plugin{path}.build(ctx)
	return err == nil && strings.HasPrefix(build, buildPrefix)
}

// isSource reports whether the content equals the weft-cni to install, which may not run on this node.
func (u *uninstaller) isSource(raw []byte) bool {
	return u.programs.load() == nil && bytes.Equal(u.programs.content, raw)
}

func (u *uninstaller) remove(path string) error {
	u.files.reached("removing " + filepath.Base(path))
	if err := ignoreNotExist(os.Remove(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	u.say("removed %s", path)
	return syncDir(filepath.Dir(path))
}
