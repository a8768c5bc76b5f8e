package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"
)

// foreignIsSound refuses what cannot be the IPAM plugin of weft-cni.
func (c *conf) foreignIsSound(r role) error {
	kind := c.IPAM.Type
	switch {
	case r.ipam || kind == "" || kind == ipamName:
		return nil
	case kind == pluginName:
		return fmt.Errorf("ipam.type %q is no IPAM plugin, did you mean %q?", kind, ipamName)
	case kind == "." || kind == ".." || strings.ContainsAny(kind, `/\`):
		return fmt.Errorf("ipam.type %q is a path, and should be the name of a plugin", kind)
	case c.Mode == modeChained:
		return fmt.Errorf("ipam.type %q gives an address to the main interface, and mode %s makes none: leave ipam out", kind, modeChained)
	}
	return nil
}

// asksByLink knows the IPAM plugins that need the pod's interface to be there: they ask for addresses by it, and give
// them back by it. All others are executed before anything is made.
func asksByLink(kind string) bool { return kind == "dhcp" }

// foreignIsHeard refuses an IPAM plugin that asks by the interface where nobody would hear it. What the network is only
// the agent knows.
func (c *conf) foreignIsHeard(r role) error {
	isHeard := c.Mode == modeDelegate && c.InterfaceType != "memif" && !slices.Contains([]string{"", "default", "stub"}, c.Network)
	if r.ipam || !asksByLink(c.IPAM.Type) || isHeard {
		return nil
	}
	return fmt.Errorf("ipam.type %q asks for addresses by the interface: that is for mode %s, with interfaceType tap or veth and network one of type L2 without cidrs; leave ipam out, or use another plugin",
		c.IPAM.Type, modeDelegate)
}

// foreign is the IPAM plugin of somebody else that the configuration names.
type foreign struct {
	kind     string
	stdin    []byte // the whole configuration, as the specification says
	override string
	exec     invoke.Exec
}

// foreign is nil if the agent gives the addresses itself.
func (c *call) foreign() *foreign {
	kind := c.conf.IPAM.Type
	if kind == "" || kind == ipamName || c.conf.foreignIsSound(c.role) != nil || c.ipam {
		return nil
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}, PluginDecoder: cniversion.PluginDecoder{}}
	return &foreign{kind: kind, stdin: c.StdinData, override: c.override, exec: exec}
}

// forward has the foreign IPAM plugin, if there is one, do its part of a verb that gives no result.
func (c *call) forward(ctx context.Context, verb string) error {
	f := c.foreign()
	if f == nil {
		return nil
	}
	path, err := f.path()
	if err != nil {
		return err
	}
	if err := invoke.ExecPluginWithoutResult(ctx, path, f.stdin, f.environment(verb), f.exec); err != nil {
		return f.failed(ctx, verb, err)
	}
	return nil
}

// giveBack is its DEL. It has time of its own, as that of an ADD may be over.
func (c *call) giveBack() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.plugin.del.call)
	defer cancel()
	return c.forward(ctx, "DEL")
}

// lease is its ADD, which is to give one address at least.
func (f *foreign) lease(ctx context.Context) (_ *types100.Result, err error) {
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // the library converts null elements of old versions without a look
			err = f.failed(ctx, "ADD", errors.New("an address or route of its result is null"))
		}
	}()
	raw, err := invoke.ExecPluginWithResult(ctx, path, f.stdin, f.environment("ADD"), f.exec)
	if err != nil {
		return nil, f.failed(ctx, "ADD", err)
	}
	result, err := types100.NewResultFromResult(raw)
	switch {
	case err != nil:
		return nil, f.failed(ctx, "ADD", err)
	case len(result.IPs) == 0:
		return nil, f.failed(ctx, "ADD", errors.New("it gave no address"))
	}
	if err := isComplete(result); err != nil {
		return nil, f.failed(ctx, "ADD", err)
	}
	return result, nil
}

// isComplete refuses addresses and routes without the part that the agent needs. The library reads null and "" as nil.
func isComplete(r *types100.Result) error {
	for _, ip := range r.IPs {
		if ip == nil || ip.Address.IP == nil {
			return errors.New("an address of its result is null or empty")
		}
	}
	for _, route := range r.Routes {
		if route == nil || route.Dst.IP == nil {
			return errors.New("a route of its result is null, or has no destination")
		}
	}
	return nil
}

func (f *foreign) path() (string, error) {
	path, err := f.exec.FindInPath(f.kind, filepath.SplitList(os.Getenv("CNI_PATH")))
	if err != nil {
		return "", types.NewError(types.ErrInvalidNetworkConfig, "ipam "+f.kind+": "+err.Error(), "is it installed?")
	}
	return path, nil
}

func (f *foreign) environment(verb string) invoke.CNIArgs { return environ{verb, f.override} }

// environ is the runtime's environment, but for the verb.
type environ struct{ verb, override string }

// AsEnv takes back what was changed for the library that parses our own input.
func (e environ) AsEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name == "CNI_COMMAND" || name == netnsOverride
	})
	env = append(env, "CNI_COMMAND="+e.verb)
	if e.override != "" {
		env = append(env, netnsOverride+"="+e.override)
	}
	return env
}

// failed says which plugin it was. Its codes above 99 mean what it says, not what Weft says.
func (f *foreign) failed(ctx context.Context, verb string, err error) error {
	what := fmt.Sprintf("%s of ipam %s: ", verb, f.kind)
	if ctx.Err() != nil {
		return types.NewError(errTimeout, what+"it did not answer in time", "")
	}
	e, ok := errors.AsType[*types.Error](err)
	switch {
	case !ok:
		return types.NewError(types.ErrInternal, what+err.Error(), "")
	case e.Code == 0 || e.Code >= 100:
		return types.NewError(types.ErrInternal, what+e.Msg, strings.TrimSuffix(fmt.Sprintf("its code %d: %s", e.Code, e.Details), ": "))
	}
	return types.NewError(e.Code, what+e.Msg, e.Details)
}

// both joins what failed here and there; the first one's code stands.
func both(first, second error) error {
	if first == nil || second == nil {
		return errors.Join(first, second)
	}
	code, details := types.ErrInternal, ""
	if e, ok := errors.AsType[*types.Error](first); ok {
		code, details = e.Code, e.Details
		first = errors.New(e.Msg)
	}
	if e, ok := errors.AsType[*types.Error](second); ok {
		second = errors.New(e.Msg)
	}
	return types.NewError(code, first.Error()+"; and "+second.Error(), details)
}
