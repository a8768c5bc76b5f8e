// Package cni is the CNI plugin: it sends a runtime's request to the agent, and prints the reply as a CNI result.
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

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/weftnet/weft/internal/jsonerror"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// supported are the CNI versions that the plugin implements.
var supported = cniversion.PluginSupports("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// Main is the program weft-cni, or weft-ipam if args[0] has that name. It returns the exit code.
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

	override string // CNI_NETNS_OVERRIDE of the runtime: the sandbox may use the runtime's own network namespace

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

// netnsOverride is an environment variable that skel reads.
const netnsOverride = "CNI_NETNS_OVERRIDE"

func (p *plugin) ownNetnsAllowed() bool {
	return slices.Contains([]string{"1", "true", "TRUE"}, p.override)
}

// serve runs the requested verb and prints at most one JSON document to stdout.
func serve(p *plugin, verbs skel.CNIFuncs) int {
	// skel checks the namespace after the verb. That is too late for an ADD, which has printed its result, and a DEL
	// needs no namespace.
	if err := os.Setenv(netnsOverride, "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if p.command == "DEL" && isInvalidDel() {
		return 0
	}
	err := recoverPanic(func() *types.Error {
		return skel.PluginMainFuncsWithError(verbs, supported, "")
	})
	if err == nil {
		return 0
	}
	if printErr := printDocument(sanitise(p.command, err)); printErr != nil {
		fmt.Fprintln(os.Stderr, "print the error:", printErr)
	}
	return 1
}

// isInvalidDel reports whether a DEL names a container or an interface that skel rejects, and has rejected in the ADD.
// Such a DEL succeeds, because the runtime would retry it forever. A DEL without a name stays an error.
func isInvalidDel() bool {
	container := os.Getenv("CNI_CONTAINERID")
	name := os.Getenv("CNI_IFNAME")
	return container != "" && name != "" &&
		(utils.ValidateContainerID(container) != nil || utils.ValidateInterfaceName(name) != nil)
}

func (p *plugin) verbs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    p.verb(add),
		Del:    p.verb(del),
		Check:  p.verb(check),
		Status: p.verb(reportStatus),
		GC:     p.verb(gc),
	}
}

// recoverPanic returns a panic of f as a CNI error.
func recoverPanic(f func() *types.Error) (err *types.Error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	return f()
}

// panicError writes the stack to stderr, which runtimes log.
func panicError(v any) *types.Error {
	fmt.Fprintf(os.Stderr, "panic: %v\n%s", v, debug.Stack())
	return errorf(types.ErrInternal, "weft-cni: panic: %v: this is a defect of Weft", v)
}

// call is one execution of a verb.
type call struct {
	*plugin
	*skel.CmdArgs
	conf *conf
	log  *log
}

// verb reads the configuration, runs do, and logs the outcome.
func (p *plugin) verb(do func(*call) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		began := time.Now()
		conf, err := p.readConf(args.StdinData)
		if err != nil {
			return err
		}
		c := &call{plugin: p, CmdArgs: args, conf: conf, log: openLog(conf)}
		defer c.log.close()
		err = c.run(do)
		c.log.logCall(c, time.Since(began), err)
		return err
	}
}

// run returns a panic of do as an error, and logs its stack.
func (c *call) run(do func(*call) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("panic", "verb", c.command, "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = panicError(v)
		}
	}()
	return do(c)
}

// readConf is lenient for a DEL, which must work even if the configuration has become invalid since the ADD. The
// settings of the node must be readable: they say where the DEL goes.
func (p *plugin) readConf(stdin []byte) (*conf, error) {
	n, err := readNode()
	switch {
	case err != nil:
		return nil, errorf(types.ErrInvalidNetworkConfig, "%v", err)
	case p.command == "DEL":
		return n.parseForDel(stdin, p.role), nil
	}
	return n.parse(stdin, p.role)
}

func (c *call) caller() *weftv1.Caller {
	return &weftv1.Caller{Version: c.version, Protocol: weftv1.Protocol}
}

func (c *call) mode() string { return c.role.mode(c.conf) }

func (c *call) key() attachmentKey {
	return attachmentKey{role: c.role, name: c.conf.Name, containerID: c.ContainerID, ifName: c.IfName}
}

func (c *call) netns() netns { return netns{path: c.Netns, ownAllowed: c.ownNetnsAllowed()} }

// validateEnvironment checks values that skel does not check.
func (c *call) validateEnvironment() error {
	if err := c.key().validate(); err != nil {
		return err
	}
	if err := c.key().validateIfName(); err != nil {
		return err
	}
	return c.netns().validatePath()
}

func (c *call) composer(prev *types100.Result) composer {
	return composer{role: c.role, conf: c.conf, prev: prev, stdin: c.StdinData}
}

func (c *call) deletion() *deletion {
	req := &weftv1.DeleteRequest{Caller: c.caller(), Attachment: c.key().message()}
	if env, err := parseArgs(c.CmdArgs.Args); err == nil {
		req.Pod = env.pod()
	}
	return &deletion{
		socket: c.conf.Socket, queue: c.conf.DeleteQueue, limits: c.del,
		key: c.key(), req: req, ipam: c.ipamPlugin(), log: c.log,
	}
}

// ipamPlugin returns the third-party IPAM plugin of the configuration; nil if the agent allocates addresses.
func (c *call) ipamPlugin() *ipamPlugin {
	name := c.conf.IPAM.Type
	if name == "" || name == ipamName || c.conf.validateIPAMType(c.role) != nil || c.ipam {
		return nil
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}, PluginDecoder: cniversion.PluginDecoder{}}
	return &ipamPlugin{name: name, stdin: c.StdinData, override: c.override, limit: c.del.call, exec: exec}
}

// role is weft-cni or weft-ipam.
type role struct{ ipam bool }

// Names of the program. weft-ipam is a link to weft-cni.
const (
	pluginName = "weft-cni"
	ipamName   = "weft-ipam"
)

func roleOf(argv0 string) role { return role{ipam: filepath.Base(argv0) == ipamName} }

func (r role) name() string {
	if r.ipam {
		return ipamName
	}
	return pluginName
}

// ownObject returns the JSON object that holds Weft's keys: for weft-ipam the object ipam, because the other keys
// belong to the plugin that calls it.
func (r role) ownObject(stdin []byte) ([]byte, error) {
	if !r.ipam {
		return stdin, nil
	}
	var outer struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &outer); err != nil {
		return nil, jsonerror.Plain(err)
	}
	if outer.IPAM == nil {
		return nil, errors.New(ipamName + " needs the object ipam")
	}
	return outer.IPAM, nil
}

// keys returns the keys that Weft's object may have.
func (r role) keys() []string {
	if !r.ipam {
		return slices.Concat(ownKeys, specKeys)
	}
	forInterfaces := func(key string) bool {
		return slices.Contains([]string{"mode", "network", "interfaceType", "options"}, key)
	}
	known := slices.DeleteFunc(slices.Clone(ownKeys), forInterfaces)
	return append(known, "type", "routes", "pool", "pools")
}

// where is for errors about a key.
func (r role) where() string {
	if r.ipam {
		return " in ipam"
	}
	return ""
}

// network returns the network name of the attachment's key. weft-ipam has a name of its own, because one list may
// contain weft-cni and weft-ipam for the same sandbox and interface name, and both receive a DEL.
func (r role) network(name string) string {
	if r.ipam {
		return name + "." + ipamName
	}
	return name
}

func (r role) mode(c *conf) string {
	if r.ipam {
		return "ipam"
	}
	return c.Mode
}
