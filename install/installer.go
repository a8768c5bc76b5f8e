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
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/internal/version"
)

// installer is one run of the program.
type installer struct {
	*Options
	log *notices
	out io.Writer

	files    *files
	programs *programs
	own      *ownList   // with mode primary
	foreign  *extension // with --extend
}

// Install installs programs and configuration; files that are as desired are not written. It writes the configuration
// when the agent serves pods. With Watch it restores removed files until ctx ends, which is no error. Objects that the
// operator must add to other configurations are printed to out.
func Install(ctx context.Context, o Options, log *slog.Logger, out io.Writer) error {
	i := newInstaller(o, log, out)
	if err := i.programs.load(); err != nil {
		return err
	}
	return i.run(ctx)
}

func newInstaller(o Options, log *slog.Logger, out io.Writer) *installer {
	n := &notices{Logger: log, last: make(map[string]string)}
	f := &files{log: n, placed: make(map[string]bool), reached: func(string) {}}
	return &installer{
		Options: &o, log: n, out: out, files: f,
		programs: &programs{Options: &o, build: version.String(), log: n, files: f},
		own:      &ownList{Options: &o, log: n, files: f},
		foreign:  &extension{Options: &o, log: n, files: f},
	}
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
		i.log.incomplete("waiting", err)
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
	if err := i.programs.ensure(ctx); err != nil {
		return err
	}
	return i.ensureConf(ctx)
}

// ensureConf writes the configuration if it is missing and the agent serves pods.
func (i *installer) ensureConf(ctx context.Context) error {
	switch {
	case i.Mode == Primary:
		return i.own.ensure(ctx)
	case i.Extend != "":
		return i.foreign.ensure(ctx)
	}
	return nil
}

// printObject prints the object that the operator must add if the installer writes no configuration.
func (i *installer) printObject() {
	if i.target() != "" {
		return
	}
	heading := "Append this object to the plugins of the other CNI, or use --extend FILE:"
	conf := any(i.object())
	if i.Mode == Delegate {
		heading = "For the config of a NetworkAttachmentDefinition:"
		conf = list{CNIVersion: lastOld, Name: network, Plugins: []any{i.object()}}
	}
	raw, err := render(conf)
	if err != nil {
		i.log.Error("configuration not printed", "err", err)
		return
	}
	_, _ = fmt.Fprintf(i.out, "%s\n%s", heading, raw) // output is best effort
}
