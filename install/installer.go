// Package install installs the CNI plugin and its configuration on a node, and uninstalls them.
//
// At every moment the container runtime finds either no configuration of Weft, or one with a working plugin: the
// program is installed first and tested before it gets its name; then the new plugin asks the agent whether it serves
// pods; only then the configuration is written, and the node becomes ready. Each file is replaced by a rename within
// its directory. Uninstall works in the reverse order.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/internal/version"
)

// installer is one run of the program.
type installer struct {
	Options
	build string // output of --version of each program of this build
	log   *slog.Logger
	out   io.Writer

	content []byte            // of the weft-cni to install
	own     []byte            // Weft's list as it was last composed
	placed  map[string]bool   // files that were as desired at least once: a later change is the administrator's
	logged  map[string]string // last message by subject, to log repeats once
	reached func(step string) // for tests, which crash the installer at a step
}

// Install installs programs and configuration; files that are as desired are not written. It writes the configuration
// when the agent serves pods. With Watch it restores removed files until ctx ends, which is no error. Objects that the
// operator must add to other configurations are printed to out.
func Install(ctx context.Context, o Options, log *slog.Logger, out io.Writer) error {
	i := newInstaller(o, log, out)
	if err := i.load(); err != nil {
		return err
	}
	return i.run(ctx)
}

func newInstaller(o Options, log *slog.Logger, out io.Writer) *installer {
	return &installer{
		Options: o, build: version.String(), log: log, out: out,
		placed: make(map[string]bool), logged: make(map[string]string), reached: func(string) {},
	}
}

// load reads the weft-cni to install into memory: the source may be an image that is unmounted later.
func (i *installer) load() error {
	if i.Source == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the directory of this program: %w", err)
		}
		i.Source = filepath.Dir(self)
	}
	content, err := os.ReadFile(filepath.Join(i.Source, program))
	if err != nil {
		return fmt.Errorf("read the program to install: %w; set --source to the directory of weft-cni", err)
	}
	i.content = content
	return nil
}

func (i *installer) run(ctx context.Context) error {
	if err := removeMarker(i.marker()); err != nil {
		return err
	}
	if err := i.ensureWithRetries(ctx); err != nil {
		return err
	}
	i.printObject()
	if !i.Watch {
		return nil
	}
	return i.watch(ctx)
}

// temporary is an error that can disappear without a change of the options, such as an agent that does not serve pods
// yet.
type temporary struct{ error }

// Unwrap returns the reason.
func (t temporary) Unwrap() error { return t.error }

// retryInterval is the time between two attempts while the agent is not ready, or pods need the programs.
const retryInterval = 500 * time.Millisecond

// ensureWithRetries calls ensure until it succeeds, fails permanently, or Wait is over.
func (i *installer) ensureWithRetries(ctx context.Context) error {
	limited := ctx
	if i.Wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, i.Wait)
		defer cancel()
	}
	var err error
	_ = wait.PollUntilContextCancel(limited, retryInterval, true, func(context.Context) (bool, error) {
		err = i.ensure(ctx)
		if _, retry := errors.AsType[temporary](err); !retry {
			return true, nil
		}
		i.warnOnce("waiting", err)
		return false, nil
	})
	_, unfinished := errors.AsType[temporary](err)
	switch {
	case !unfinished:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s is not written: %w; the installer was stopped", i.target(), err)
	}
	return fmt.Errorf("%s is not written: %w; see the log of weft-agent", i.target(), err)
}

// ensure installs what is missing, once.
func (i *installer) ensure(ctx context.Context) error {
	if err := i.ensurePrograms(ctx); err != nil {
		return err
	}
	return i.ensureConf(ctx)
}

// target returns the path of the configuration to write; "" if the operator writes it.
func (i *installer) target() string {
	if i.Mode == Primary {
		return i.conf()
	}
	return i.Extend
}

// warnOnce logs why the installation is incomplete. It does not repeat a reason.
func (i *installer) warnOnce(subject string, err error) {
	if i.isNew(subject, err.Error()) {
		i.log.Warn("installation incomplete, retrying", "err", err)
	}
}

// isNew reports whether the text differs from the last one about the subject.
func (i *installer) isNew(subject, text string) bool {
	repeated := i.logged[subject] == text
	i.logged[subject] = text
	return !repeated
}
