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

	"github.com/weftnet/weft/internal/version"
)

// installer is one run of the program.
type installer struct {
	Options
	build string // what every program of this build says of itself
	log   *slog.Logger
	out   io.Writer

	content []byte          // of the program to install
	own     []byte          // Weft's list, as it was last composed
	placed  map[string]bool // paths that were as they should be once: a later change is the administrator's
	said    map[string]string
	reached func(step string) // for tests, which pull the plug there
}

// Install brings programs and configuration onto the node; what is as it should be is left untouched. It waits until the
// agent would serve pods before it writes the configuration. With Watch it stays until ctx ends, which is no error, and
// puts back what is removed. What the operator has to add elsewhere is written to out.
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
		placed: make(map[string]bool), said: make(map[string]string), reached: func(string) {},
	}
}

// load reads the program that is to be installed: the source may be an image that goes away.
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
		return fmt.Errorf("read the program to install: %w; --source names the directory of weft-cni", err)
	}
	i.content = content
	return nil
}

func (i *installer) run(ctx context.Context) error {
	if err := unmark(i.marker()); err != nil {
		return err
	}
	if err := i.settle(ctx); err != nil {
		return err
	}
	i.show()
	if !i.Watch {
		return nil
	}
	return i.watch(ctx)
}

// notYet is what may be otherwise in a moment, like an agent that does not serve pods.
type notYet struct{ error }

// Unwrap gives the reason, for errors.Is and errors.As.
func (n notYet) Unwrap() error { return n.error }

// askAgain is the time between two questions to an agent that is not ready.
const askAgain = 500 * time.Millisecond

// settle brings the node into its state once.
func (i *installer) settle(ctx context.Context) error {
	var end <-chan time.Time // never, unless there is a limit
	if i.Wait > 0 {
		end = time.After(i.Wait)
	}
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for {
		err := i.ensure(ctx)
		if err == nil || !errors.As(err, new(notYet)) {
			return err
		}
		i.sayOnce("waiting", err)
		select {
		case <-tick.C:
		case <-end:
			return fmt.Errorf("%s is not written: %w; see the log of weft-agent", i.target(), err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not written: %w, and this was stopped", i.target(), err)
		}
	}
}

// ensure does one look at everything and what it shows to be missing.
func (i *installer) ensure(ctx context.Context) error {
	if err := i.ensurePrograms(ctx); err != nil {
		return err
	}
	return i.ensureConf(ctx)
}

// target is the configuration that is written; "" if there is none.
func (i *installer) target() string {
	if i.Mode == Primary {
		return i.conf()
	}
	return i.Extend
}

// sayOnce logs why something is not done yet, once for each reason.
func (i *installer) sayOnce(what string, err error) {
	if i.isNew(what, err.Error()) {
		i.log.Warn("not installed yet", "err", err)
	}
}
