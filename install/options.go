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

// Modes of the plugin in its configuration.
const (
	Primary  = "primary"  // Weft creates the main interface of pods
	Chained  = "chained"  // Weft follows the plugins of another CNI
	Delegate = "delegate" // Multus calls Weft
)

// Options are the settings of install and uninstall. The zero value is not usable: Flags sets the defaults.
type Options struct {
	Source   string // directory of weft-cni; "" = the one of this program
	BinDir   string
	ConfDir  string
	ConfName string

	Mode   string
	Extend string // list of another CNI to append Weft's object to; "" = none

	ListOptions
	NodeSettings

	// install: maximum time until the agent is ready, 0 = unlimited; uninstall: until the last pod is deleted, 0 = none
	Wait  time.Duration
	Watch bool
	Force bool
}

// ListOptions are the settings of Weft's own list, which is written in mode primary.
type ListOptions struct {
	Versions  []string // of CNI
	Behind    []string // plugins that follow Weft in the chain, if they are installed
	Exclusive bool     // foreign configurations are set aside until Weft is uninstalled
}

// NodeSettings is the content of the settings file of the plugin. Weft's object in a configuration repeats it, for
// earlier releases of weft-cni.
type NodeSettings struct {
	Socket      string `json:"socket"`
	DeleteQueue string `json:"deleteQueue"`
	LogLevel    string `json:"logLevel"`
	LogFile     string `json:"logFile"`
}

// Flags binds the options that install and uninstall share.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BinDir, "bin-dir", "/opt/cni/bin", "directory of CNI plugins of the container runtime")
	fs.StringVar(&o.ConfDir, "conf-dir", "/etc/cni/net.d", "directory of CNI configurations of the container runtime")
	fs.StringVar(&o.ConfName, "conf-name", "10-weft.conflist",
		"file name of the configuration; runtimes use the first one in lexical order")
	fs.StringVar(&o.Extend, "extend", "",
		"with --mode chained: .conflist of the other CNI; Weft's object is appended to it")
	fs.StringVar(&o.Socket, "socket", "/run/weft/agent.sock", "socket of the agent")
}

// InstallFlags binds all options of install.
func (o *Options) InstallFlags(fs *pflag.FlagSet) {
	o.Flags(fs)
	fs.StringVar(&o.Source, "source", "", "directory of the weft-cni to install; default: the one of this program")
	fs.StringVar(&o.Mode, "mode", Primary,
		"primary (Weft creates the main interface of pods), chained (after another CNI) or delegate (called by Multus)")
	fs.StringSliceVar(&o.Versions, "cni-versions", []string{"0.4.0", "1.0.0", "1.1.0"},
		"CNI versions of the configuration")
	fs.StringSliceVar(&o.Behind, "behind", []string{"portmap"},
		"plugins that follow Weft in the chain, if they are in --bin-dir")
	fs.BoolVar(&o.Exclusive, "exclusive", false,
		"with --mode primary: rename foreign configurations, so that runtimes ignore them; uninstall restores their names")
	fs.StringVar(&o.DeleteQueue, "delete-queue", "/var/lib/weft/delete-queue",
		"directory where the plugin queues DELs while the agent does not run")
	fs.StringVar(&o.LogLevel, "cni-log-level", "info", "log level of the plugin: debug, info, warn or error")
	fs.StringVar(&o.LogFile, "cni-log-file", "", "log file of the plugin; empty: none")
	fs.DurationVar(&o.Wait, "wait", 0, "maximum time until the agent is ready; 0: unlimited")
	fs.BoolVar(&o.Watch, "watch", false, "keep running and restore removed files; on SIGTERM exit and keep all files")
}

// UninstallFlags binds all options of uninstall.
func (o *Options) UninstallFlags(fs *pflag.FlagSet) {
	o.Flags(fs)
	fs.DurationVar(&o.Wait, "wait", 0, "maximum time until the last pod that Weft connected is deleted")
	fs.BoolVar(&o.Force, "force", false, "remove the programs even if pods need them for their deletion")
}

// Validate reports every invalid option of uninstall with its flag.
func (o *Options) Validate() error {
	errs := []error{
		absolute("bin-dir", o.BinDir), absolute("conf-dir", o.ConfDir), absolute("socket", o.Socket),
		o.validateConfName(),
	}
	if o.Extend != "" {
		errs = append(errs, absolute("extend", o.Extend))
		if filepath.Ext(o.Extend) != ".conflist" {
			errs = append(errs,
				fmt.Errorf("--extend %s: must be a .conflist, which can have several plugins", o.Extend))
		}
	}
	if o.Wait < 0 {
		errs = append(errs, fmt.Errorf("--wait %s is negative", o.Wait))
	}
	return errors.Join(errs...)
}

// bandwidthPlugin is a plugin that has no effect on pods of Weft.
const bandwidthPlugin = "bandwidth"

// ValidateInstall reports every invalid option of install with its flag.
func (o *Options) ValidateInstall() error {
	errs := []error{
		o.Validate(), oneOf("mode", o.Mode, Primary, Chained, Delegate),
		oneOf("cni-log-level", o.LogLevel, "debug", "info", "warn", "error"), absolute("delete-queue", o.DeleteQueue),
	}
	if o.LogFile != "" {
		errs = append(errs, absolute("cni-log-file", o.LogFile))
	}
	if o.Extend != "" && o.Mode != Chained {
		errs = append(errs, fmt.Errorf("--extend requires --mode chained, not %s", o.Mode))
	}
	if o.Exclusive && o.Mode != Primary {
		errs = append(errs, fmt.Errorf("--exclusive requires --mode primary, not %s", o.Mode))
	}
	if len(o.Versions) == 0 {
		errs = append(errs, errors.New("--cni-versions: at least one is required"))
	}
	for _, v := range o.Versions {
		if !slices.Contains(supportedVersions, v) {
			errs = append(errs,
				fmt.Errorf("--cni-versions: %q is not one of %s", v, strings.Join(supportedVersions, ", ")))
		}
	}
	for _, name := range o.Behind {
		if name == bandwidthPlugin {
			errs = append(errs,
				fmt.Errorf(
					"--behind: remove %s: it cannot limit pods of Weft, because their packets bypass the kernel's traffic control",
					bandwidthPlugin))
		}
		if name == "" || filepath.Base(name) != name || name == program {
			errs = append(errs, fmt.Errorf("--behind: %q is not the name of another plugin", name))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) validateConfName() error {
	if filepath.Base(o.ConfName) != o.ConfName || filepath.Ext(o.ConfName) != ".conflist" ||
		strings.HasPrefix(o.ConfName, ".") {
		return fmt.Errorf("--conf-name %q is not a visible file name that ends in .conflist", o.ConfName)
	}
	return nil
}

func (o *Options) conf() string { return filepath.Join(o.ConfDir, o.ConfName) }

func (o *Options) binary(name string) string { return filepath.Join(o.BinDir, name) }

// target returns the path of the configuration to write; "" if the operator writes it.
func (o *Options) target() string {
	if o.Mode == Primary {
		return o.conf()
	}
	return o.Extend
}

// dirs returns the directories that the installer writes to.
func (o *Options) dirs() []string {
	dirs := []string{o.BinDir}
	target := o.target()
	if target == "" {
		return dirs
	}
	dirs = append(dirs, filepath.Dir(target))
	if file, err := filepath.EvalSymlinks(target); err == nil && filepath.Dir(file) != filepath.Dir(target) {
		dirs = append(dirs, filepath.Dir(file)) // the other CNI writes there
	}
	return dirs
}

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
