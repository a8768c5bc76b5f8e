// Package cni is the thin CNI plugin: it turns what a runtime says into one call of the agent, and the reply into a result.
package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	cniversion "github.com/containernetworking/cni/pkg/version"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// supported are the versions of the specification that are served, with their own form of a result.
var supported = cniversion.PluginSupports("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// Main is the program weft-cni, or weft-ipam where the name that it was started by, the
// first of args, is that: version is the build's own. It returns the exit code.
func Main(version string, args []string) int {
	r := roleOf(args[0])
	if os.Getenv("CNI_COMMAND") == "" {
		return terminal{os.Stdout, os.Stderr, r.name()}.run(version, args[1:])
	}
	p := newPlugin(version, r)
	return serve(p, p.verbs())
}

// plugin is one run of the program.
type plugin struct {
	role
	version string
	command string

	override string // CNI_NETNS_OVERRIDE as the runtime set it: the sandbox may be the runtime's own namespace

	del delLimits
}

func newPlugin(version string, r role) *plugin {
	return &plugin{
		role:     r,
		version:  version,
		command:  os.Getenv("CNI_COMMAND"),
		override: os.Getenv(netnsOverride),
		del:      defaultDelLimits,
	}
}

// netnsOverride is a variable of the environment that CNI's own library reads.
const netnsOverride = "CNI_NETNS_OVERRIDE"

func (p *plugin) ownNetnsAllowed() bool {
	return slices.Contains([]string{"1", "true", "TRUE"}, p.override)
}

// serve does what the runtime asks and leaves exactly one JSON document on stdout, or none.
func serve(p *plugin, verbs skel.CNIFuncs) int {
	// skel checks the namespace once the verb is done. That is too late for an ADD,
	// whose result is printed by then, and a DEL needs no namespace at all.
	if err := os.Setenv(netnsOverride, "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if p.command == "DEL" && nothingToDelete() {
		return 0
	}
	err := guard(func() *types.Error {
		return skel.PluginMainFuncsWithError(verbs, supported, "")
	})
	if err == nil {
		return 0
	}
	if printing := printed(presentable(p.command, err)); printing != nil {
		fmt.Fprintln(os.Stderr, "print the error:", printing)
	}
	return 1
}

// nothingToDelete reports whether a DEL names a container or an interface that skel refuses, and has refused in the ADD: the
// runtime would repeat the DEL for ever. One that names none at all stays an error.
func nothingToDelete() bool {
	container, name := os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_IFNAME")
	return container != "" && name != "" &&
		(utils.ValidateContainerID(container) != nil || utils.ValidateInterfaceName(name) != nil)
}

func (p *plugin) verbs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    p.verb(add),
		Del:    p.verb(del),
		Check:  p.verb(check),
		Status: p.verb(available),
		GC:     p.verb(collect),
	}
}

// guard turns a panic into an error of the runtime's form.
func guard(f func() *types.Error) (err *types.Error) {
	defer func() {
		if v := recover(); v != nil {
			err = defect(v)
		}
	}()
	return f()
}

// defect is the error of a panic. Its stack goes to stderr, which runtimes log.
func defect(v any) *types.Error {
	fmt.Fprintf(os.Stderr, "panic: %v\n%s", v, debug.Stack())
	return types.NewError(types.ErrInternal, fmt.Sprintf("weft-cni: panic: %v: this is a defect of Weft", v), "")
}

// call is one verb under way.
type call struct {
	*plugin
	*skel.CmdArgs
	conf *conf
	log  *log
}

// verb wraps what all verbs have in common: the configuration, the log, and its last line.
func (p *plugin) verb(do func(*call) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		began := time.Now()
		conf, err := p.readConf(args.StdinData)
		if err != nil {
			return err
		}
		c := &call{plugin: p, CmdArgs: args, conf: conf, log: openLog(conf)}
		defer c.log.close()
		err = c.guarded(do)
		c.log.ended(c, time.Since(began), err)
		return err
	}
}

// guarded runs do; a panic is its error, with the stack in the log.
func (c *call) guarded(do func(*call) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("panic", "verb", c.command, "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = defect(v)
		}
	}()
	return do(c)
}

// readConf is strict but for a DEL: that has to work whatever has become of the
// configuration since the ADD.
func (p *plugin) readConf(stdin []byte) (*conf, error) {
	if p.command == "DEL" {
		return parseConfLeniently(stdin, p.role), nil
	}
	return parseConf(stdin, p.role)
}

func (c *call) caller() *weftv1.Caller {
	return &weftv1.Caller{Version: c.version, Protocol: weftv1.Protocol}
}

// network is the name that the agent knows.
func (c *call) network() string { return c.role.network(c.conf.Name) }

func (c *call) mode() string { return c.role.mode(c.conf) }

func (c *call) attachment() *weftv1.Attachment {
	return &weftv1.Attachment{Network: c.network(), ContainerId: c.ContainerID, IfName: c.IfName}
}

// role is what the program is started as.
type role struct{ ipam bool }

// Names of the program. The second one is a link to the first.
const (
	pluginName = "weft-cni"
	ipamName   = "weft-ipam"
)

// roleOf knows the role by the name that the program was started by.
func roleOf(argv0 string) role { return role{ipam: filepath.Base(argv0) == ipamName} }

func (r role) name() string {
	if r.ipam {
		return ipamName
	}
	return pluginName
}

// ownObject is the object of the configuration that holds Weft's keys. Beside an IPAM plugin's own the keys are those
// of the plugin that calls it.
func (r role) ownObject(stdin []byte) ([]byte, error) {
	if !r.ipam {
		return stdin, nil
	}
	var outer struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &outer); err != nil {
		return nil, err
	}
	if outer.IPAM == nil {
		return nil, errors.New("there is no object ipam, which is that of " + ipamName)
	}
	return outer.IPAM, nil
}

// keys are those that the object may have.
func (r role) keys() []string {
	if !r.ipam {
		return slices.Concat(ownKeys, specKeys)
	}
	ofInterfaces := func(key string) bool {
		return slices.Contains([]string{"mode", "network", "interfaceType", "options"}, key)
	}
	known := slices.DeleteFunc(slices.Clone(ownKeys), ofInterfaces)
	return append(known, "type", "routes", "pool", "pools")
}

// where says in which object a key was read.
func (r role) where() string {
	if r.ipam {
		return " in ipam"
	}
	return ""
}

// network is the name under which attachments are kept. Addresses that Weft gives to another plugin's interface are an
// attachment of their own: the same list may have weft-cni too, for the same sandbox and interface name, and each is
// deleted in its turn.
func (r role) network(name string) string {
	if r.ipam {
		return name + "." + ipamName
	}
	return name
}

// mode is what Weft is to the sandbox.
func (r role) mode(c *conf) string {
	if r.ipam {
		return "ipam"
	}
	return c.Mode
}
