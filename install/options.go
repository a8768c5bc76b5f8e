package install

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Modes of the plugin in the configuration that is written, or shown.
const (
	Primary  = "primary"  // Weft makes the pods' main interface
	Chained  = "chained"  // behind the plugins of another CNI
	Delegate = "delegate" // called by Multus
)

// Options says what is installed, and where. The zero value is not usable: Flags sets the defaults.
type Options struct {
	Source   string // directory of weft-cni; "" = that of this program
	BinDir   string
	ConfDir  string
	ConfName string

	Mode     string
	Extend   string // the list of another CNI that gets Weft's object; "" = none
	Versions []string
	Behind   []string // plugins after ours, where they are found

	Exclusive bool // configurations of others are put aside, until Weft is uninstalled

	Socket      string
	DeleteQueue string
	LogLevel    string
	LogFile     string

	Wait  time.Duration // for the agent, or for the last pod to go; 0 = install: for ever, uninstall: not at all
	Watch bool
	Force bool
}

// Flags binds what installing and uninstalling have in common.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BinDir, "bin-dir", "/opt/cni/bin", "directory where the container runtime looks for CNI plugins")
	fs.StringVar(&o.ConfDir, "conf-dir", "/etc/cni/net.d", "directory where the container runtime looks for CNI configurations")
	fs.StringVar(&o.ConfName, "conf-name", "10-weft.conflist", "name of the configuration; runtimes take the first in the order of names")
	fs.StringVar(&o.Extend, "extend", "", "with --mode chained: the .conflist of the other CNI, which gets Weft's object at its end")
	fs.StringVar(&o.Socket, "socket", "/run/weft/agent.sock", "socket of the agent")
}

// InstallFlags binds what only installing has.
func (o *Options) InstallFlags(fs *pflag.FlagSet) {
	o.Flags(fs)
	fs.StringVar(&o.Source, "source", "", "directory of the weft-cni to install; default: that of this program")
	fs.StringVar(&o.Mode, "mode", Primary, "primary (Weft makes the pods' main interface), chained (behind another CNI) or delegate (called by Multus)")
	fs.StringSliceVar(&o.Versions, "cni-versions", []string{"0.4.0", "1.0.0", "1.1.0"}, "versions of CNI that the configuration offers")
	fs.StringSliceVar(&o.Behind, "behind", []string{"portmap"}, "plugins behind Weft, where they are in --bin-dir")
	fs.BoolVar(&o.Exclusive, "exclusive", false, "with --mode primary: rename the configurations of others, so that runtimes take none of them; uninstalling gives them their names again")
	fs.StringVar(&o.DeleteQueue, "delete-queue", "/var/lib/weft/delete-queue", "where the plugin keeps deletes while the agent is away")
	fs.StringVar(&o.LogLevel, "cni-log-level", "info", "of the plugin: debug, info, warn or error")
	fs.StringVar(&o.LogFile, "cni-log-file", "", "of the plugin; empty: none")
	fs.DurationVar(&o.Wait, "wait", 0, "how long the agent may take until it is ready; 0: for ever")
	fs.BoolVar(&o.Watch, "watch", false, "stay, and put back what is removed; ends on SIGTERM and leaves everything in place")
}

// UninstallFlags binds what only uninstalling has.
func (o *Options) UninstallFlags(fs *pflag.FlagSet) {
	o.Flags(fs)
	fs.DurationVar(&o.Wait, "wait", 0, "how long to wait for the pods that Weft has wired to go")
	fs.BoolVar(&o.Force, "force", false, "remove the programs though pods may need them to be deleted")
}

// Validate reports all that is wrong with the options, by flag.
func (o *Options) Validate() error {
	errs := []error{
		absolute("bin-dir", o.BinDir), absolute("conf-dir", o.ConfDir), absolute("socket", o.Socket),
		o.validateConfName(),
	}
	if o.Extend != "" {
		errs = append(errs, absolute("extend", o.Extend))
		if filepath.Ext(o.Extend) != ".conflist" {
			errs = append(errs, fmt.Errorf("--extend %s: only a .conflist has room for another plugin", o.Extend))
		}
	}
	if o.Wait < 0 {
		errs = append(errs, fmt.Errorf("--wait %s: a time is not negative", o.Wait))
	}
	return errors.Join(errs...)
}

// limiter is a plugin that limits nothing behind Weft.
const limiter = "bandwidth"

// ValidateInstall is Validate with what only installing has.
func (o *Options) ValidateInstall() error {
	errs := []error{
		o.Validate(), oneOf("mode", o.Mode, Primary, Chained, Delegate),
		oneOf("cni-log-level", o.LogLevel, "debug", "info", "warn", "error"), absolute("delete-queue", o.DeleteQueue),
	}
	if o.LogFile != "" {
		errs = append(errs, absolute("cni-log-file", o.LogFile))
	}
	if o.Extend != "" && o.Mode != Chained {
		errs = append(errs, fmt.Errorf("--extend goes with --mode chained, not with %s", o.Mode))
	}
	if o.Exclusive && o.Mode != Primary {
		errs = append(errs, fmt.Errorf("--exclusive goes with --mode primary, not with %s", o.Mode))
	}
	if len(o.Versions) == 0 {
		errs = append(errs, errors.New("--cni-versions: at least one is needed"))
	}
	for _, v := range o.Versions {
		if !slices.Contains(spoken, v) {
			errs = append(errs, fmt.Errorf("--cni-versions: %q is not one of %s", v, strings.Join(spoken, ", ")))
		}
	}
	for _, name := range o.Behind {
		if name == limiter {
			errs = append(errs, fmt.Errorf("--behind: the plugin %s cannot limit pods of Weft, whose packets do not pass the kernel's traffic control: leave it out", limiter))
		}
		if name == "" || filepath.Base(name) != name || name == program {
			errs = append(errs, fmt.Errorf("--behind: %q is not the name of another plugin", name))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) validateConfName() error {
	if filepath.Base(o.ConfName) != o.ConfName || filepath.Ext(o.ConfName) != ".conflist" || strings.HasPrefix(o.ConfName, ".") {
		return fmt.Errorf("--conf-name %q is not the name of a file that ends in .conflist", o.ConfName)
	}
	return nil
}

func (o *Options) conf() string { return filepath.Join(o.ConfDir, o.ConfName) }

func (o *Options) installed(name string) string { return filepath.Join(o.BinDir, name) }

func absolute(flag, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("--%s %q is not an absolute path", flag, path)
	}
	return nil
}

func oneOf(flag, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("--%s %q is not one of %s", flag, value, strings.Join(allowed, ", "))
	}
	return nil
}
