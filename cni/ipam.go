package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// validateIPAMType rejects an ipam.type that cannot be the IPAM plugin of weft-cni.
func (c *conf) validateIPAMType(r role) error {
	name := c.IPAM.Type
	switch {
	case r.ipam || name == "" || name == ipamName:
		return nil
	case name == pluginName:
		return fmt.Errorf("ipam.type %q is not an IPAM plugin, did you mean %q?", name, ipamName)
	case name == "." || name == ".." || strings.ContainsAny(name, `/\`):
		return fmt.Errorf("ipam.type %q is a path, use the name of a plugin", name)
	case c.Mode == modeChained:
		return fmt.Errorf("ipam.type %q: mode %s does not create the main interface: remove ipam", name, modeChained)
	}
	return nil
}

// needsInterface reports whether the IPAM plugin requests and releases addresses through the pod's interface. Other
// plugins are executed before the interface exists.
func needsInterface(name string) bool { return name == "dhcp" }

// validateInterfaceIPAM rejects an IPAM plugin that needs the interface, unless that can be on an L2 network. The agent
// checks the type of the network.
func (c *conf) validateInterfaceIPAM(r role) error {
	canBeL2 := c.Mode == modeDelegate && c.InterfaceType != "memif" &&
		!slices.Contains([]string{"", "default", "stub"}, c.Network)
	if r.ipam || !needsInterface(c.IPAM.Type) || canBeL2 {
		return nil
	}
	return fmt.Errorf(
		"ipam.type %q needs mode %s, interfaceType tap or veth, and a network of type L2 without cidrs; remove ipam, or use another plugin",
		c.IPAM.Type, modeDelegate)
}

// ipamPlugin executes a third-party IPAM plugin.
type ipamPlugin struct {
	name     string
	stdin    []byte // the whole configuration, as the specification says
	override string
	limit    time.Duration // of a DEL
	exec     invoke.Exec
}

// forward executes a verb without a result; a nil plugin skips it.
func (p *ipamPlugin) forward(ctx context.Context, verb string) error {
	if p == nil {
		return nil
	}
	path, err := p.path()
	if err != nil {
		return err
	}
	if err := invoke.ExecPluginWithoutResult(ctx, path, p.stdin, p.environment(verb), p.exec); err != nil {
		return p.verbError(ctx, verb, err)
	}
	return nil
}

// release executes the DEL of the IPAM plugin. It has its own timeout, because the timeout of the ADD may have expired.
func (p *ipamPlugin) release() error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	return p.forward(ctx, "DEL")
}

// lease executes the ADD of the IPAM plugin, which must return an address.
func (p *ipamPlugin) lease(ctx context.Context) (*types100.Result, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	raw, err := invoke.ExecPluginWithResult(ctx, path, p.stdin, p.environment("ADD"), p.exec)
	if err != nil {
		return nil, p.verbError(ctx, "ADD", err)
	}
	result, err := latest(raw)
	if err == nil && len(result.IPs) == 0 {
		err = errors.New("it returned no address")
	}
	if err != nil {
		return nil, p.verbError(ctx, "ADD", err)
	}
	return result, nil
}

func (p *ipamPlugin) path() (string, error) {
	path, err := p.exec.FindInPath(p.name, filepath.SplitList(os.Getenv("CNI_PATH")))
	if err != nil {
		return "", types.NewError(types.ErrInvalidNetworkConfig, "ipam "+p.name+": "+err.Error(), "is it installed?")
	}
	return path, nil
}

func (p *ipamPlugin) environment(verb string) invoke.CNIArgs { return ipamEnv{verb, p.override} }

// ipamEnv is the runtime's environment with another verb.
type ipamEnv struct{ verb, override string }

// AsEnv restores CNI_NETNS_OVERRIDE, which the plugin has changed.
func (e ipamEnv) AsEnv() []string {
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

// verbError adds the name of the plugin. It replaces codes from 100, which each plugin defines for itself.
func (p *ipamPlugin) verbError(ctx context.Context, verb string, err error) error {
	what := fmt.Sprintf("%s of ipam %s: ", verb, p.name)
	if ctx.Err() != nil {
		return errorf(errTimeout, "%sit did not answer in time", what)
	}
	e, ok := errors.AsType[*types.Error](err)
	switch {
	case !ok:
		return errorf(types.ErrInternal, "%s%v", what, err)
	case e.Code == 0 || e.Code >= 100:
		return types.NewError(types.ErrInternal, what+e.Msg,
			strings.TrimSuffix(fmt.Sprintf("its code %d: %s", e.Code, e.Details), ": "))
	}
	return types.NewError(e.Code, what+e.Msg, e.Details)
}

// joinErrors returns an error with both messages and the code of the first error.
func joinErrors(first, second error) error {
	if first == nil || second == nil {
		return errors.Join(first, second)
	}
	code := types.ErrInternal
	details := ""
	if e, ok := errors.AsType[*types.Error](first); ok {
		code = e.Code
		details = e.Details
		first = errors.New(e.Msg)
	}
	if e, ok := errors.AsType[*types.Error](second); ok {
		second = errors.New(e.Msg)
	}
	return types.NewError(code, first.Error()+"; and "+second.Error(), details)
}
