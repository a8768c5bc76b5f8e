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

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
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
	exec     invoke.Exec
}

// ipamPlugin returns the third-party IPAM plugin of the configuration; nil if the agent allocates addresses.
func (c *call) ipamPlugin() *ipamPlugin {
	name := c.conf.IPAM.Type
	if name == "" || name == ipamName || c.conf.validateIPAMType(c.role) != nil || c.ipam {
		return nil
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}, PluginDecoder: cniversion.PluginDecoder{}}
	return &ipamPlugin{name: name, stdin: c.StdinData, override: c.override, exec: exec}
}

// forward executes a verb without a result by the third-party IPAM plugin, if there is one.
func (c *call) forward(ctx context.Context, verb string) error {
	p := c.ipamPlugin()
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

// releaseAddresses executes the DEL of the IPAM plugin. It has its own timeout, because the timeout of the ADD may have
// expired.
func (c *call) releaseAddresses() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.plugin.del.call)
	defer cancel()
	return c.forward(ctx, "DEL")
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

// addition is an ADD in progress.
type addition struct {
	req  *weftv1.AddRequest
	prev *types100.Result
}

// addWithIPAM is an ADD with addresses of a third-party IPAM plugin. It does not execute the plugin if the attachment
// already exists: the undo of a second ADD would release the address of the first.
func (c *call) addWithIPAM(ctx context.Context, p *ipamPlugin, a addition) error {
	if _, err := p.path(); err != nil {
		return err // before an operation that only the plugin can undo
	}
	what := "add " + c.name(a.req.GetPod())
	existing, err := c.askFind(ctx, a.req)
	if err := callError(what, err, existing.GetError()); err != nil {
		return err
	}
	if existing.GetFound() != nil {
		return c.printResult(a.prev, existing.GetFound())
	}
	a.req.Ips = nil // the IPAM plugin reads them from the configuration
	if needsInterface(p.name) {
		return c.addWithInterfaceIPAM(ctx, p, a)
	}
	leased, err := p.lease(ctx)
	if err != nil {
		return c.withUndoError(err, c.releaseAddresses())
	}
	setDelegated(a.req, leased)
	answer, err := c.askAdd(ctx, a.req)
	failure := callError(what, err, answer.GetError())
	switch {
	case failure == nil:
		return c.printResult(a.prev, answer)
	case outcomeUnknown(err):
		return c.withUndoError(failure, del(c))
	}
	return c.withUndoError(failure, c.releaseAddresses())
}

// addWithInterfaceIPAM is an ADD with an IPAM plugin that needs the interface. The agent creates the interface without
// addresses, and gets them in a second call. Until then the attachment awaits addresses, even after a restart of the
// agent. A failure deletes the attachment.
func (c *call) addWithInterfaceIPAM(ctx context.Context, p *ipamPlugin, a addition) error {
	what := "add " + c.name(a.req.GetPod())
	a.req.AwaitsAddresses = true
	answer, err := c.askAdd(ctx, a.req)
	failure := callError(what, err, answer.GetError())
	switch {
	case outcomeUnknown(err):
		return c.withUndoError(failure, c.deleteAttachment())
	case failure != nil:
		return failure
	}
	leased, err := p.lease(ctx)
	if err != nil {
		return c.withUndoError(err, del(c))
	}
	setDelegated(a.req, leased)
	answer, err = ask(ctx, c.addEndpoint(), weftv1.RemoteCNIClient.Address, a.req)
	if failure := callError(what, err, answer.GetError()); failure != nil {
		return c.withUndoError(failure, del(c))
	}
	return c.printResult(a.prev, answer)
}

func (c *call) askFind(ctx context.Context, req *weftv1.AddRequest) (*weftv1.FindReply, error) {
	find := &weftv1.FindRequest{Caller: req.GetCaller(), Attachment: req.GetAttachment(), Netns: req.GetNetns()}
	return ask(ctx, c.addEndpoint(), weftv1.RemoteCNIClient.Find, find)
}

// outcomeUnknown reports whether the agent may have connected the sandbox, or may still do so. If so, addresses must
// not be released before a DEL.
func outcomeUnknown(err error) bool {
	_, unreachable := errors.AsType[*unreachableError](err)
	return err != nil && !unreachable
}

// withUndoError adds the error of the undo, if any, to the reason why an ADD failed.
func (c *call) withUndoError(reason, undo error) error {
	if undo == nil {
		return reason
	}
	c.log.Warn("undo of a failed ADD failed", "err", undo)
	text := undo.Error()
	if e, ok := errors.AsType[*types.Error](undo); ok {
		text = e.Msg
	}
	return joinErrors(reason, fmt.Errorf("the undo failed: %s", text))
}

// setDelegated copies the result of a third-party IPAM plugin into the request.
func setDelegated(req *weftv1.AddRequest, leased *types100.Result) {
	for _, ip := range leased.IPs {
		req.DelegatedIps = append(req.DelegatedIps, &weftv1.IP{
			Address: ip.Address.String(),
			Gateway: ipText(ip.Gateway),
		})
	}
	for _, r := range leased.Routes {
		req.DelegatedRoutes = append(req.DelegatedRoutes, &weftv1.Route{
			Destination: r.Dst.String(),
			Gateway:     ipText(r.GW),
		})
	}
	if d := leased.DNS; !d.IsEmpty() {
		req.DelegatedDns = &weftv1.DNS{
			Nameservers: d.Nameservers,
			Domain:      d.Domain,
			Search:      d.Search,
			Options:     d.Options,
		}
	}
}
