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

// foreign returns the third-party IPAM plugin of the configuration.
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

// addition is an ADD under way.
type addition struct {
	req  *weftv1.AddRequest
	prev *types100.Result
}

// addWith is an ADD with addresses of a foreign IPAM plugin. That one gives them to a sandbox once: an attachment that
// is complete already is answered without it, or undoing the second ADD would take the address of the first.
func (c *call) addWith(ctx context.Context, f *foreign, a addition) error {
	if _, err := f.path(); err != nil {
		return err // before anything is made that would have to be undone by it
	}
	what := "add " + c.name(a.req.GetPod())
	had, err := c.askFind(ctx, a.req)
	if err != nil || had.GetError() != nil {
		return failed(what, err, had.GetError())
	}
	if had.GetFound() != nil {
		return c.printResult(a.prev, had.GetFound())
	}
	a.req.Ips = nil // the IPAM plugin knows them
	if asksByLink(f.kind) {
		return c.addByLink(ctx, f, a)
	}
	leased, err := f.lease(ctx)
	if err != nil {
		return c.undone(err, c.giveBack())
	}
	delegated(a.req, leased)
	answer, err := c.askAdd(ctx, a.req)
	switch {
	case err == nil && answer.GetError() == nil:
		return c.printResult(a.prev, answer)
	case isUnsure(err):
		return c.undone(failed(what, err, nil), del(c))
	}
	return c.undone(failed(what, err, answer.GetError()), c.giveBack())
}

// addByLink is an ADD whose IPAM plugin asks for addresses by the pod's interface. The agent makes that without any, and
// is told them then. Until it has been, the attachment is one that awaits them, also for an agent that restarts. What fails
// takes it away as a DEL does.
func (c *call) addByLink(ctx context.Context, f *foreign, a addition) error {
	what := "add " + c.name(a.req.GetPod())
	a.req.AwaitsAddresses = true
	answer, err := c.askAdd(ctx, a.req)
	switch {
	case isUnsure(err):
		return c.undone(failed(what, err, nil), c.deleteAttachment())
	case err != nil || answer.GetError() != nil:
		return failed(what, err, answer.GetError())
	}
	leased, err := f.lease(ctx)
	if err != nil {
		return c.undone(err, del(c))
	}
	delegated(a.req, leased)
	if answer, err = c.askAddress(ctx, a.req); err == nil && answer.GetError() == nil {
		return c.printResult(a.prev, answer)
	}
	return c.undone(failed(what, err, answer.GetError()), del(c))
}

func (c *call) askAddress(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	return ask(ctx, c.conf.Socket, c.addPatience(), func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.AddReply, error) {
		return agent.Address(ctx, req)
	})
}

func (c *call) askFind(ctx context.Context, req *weftv1.AddRequest) (*weftv1.FindReply, error) {
	find := &weftv1.FindRequest{Caller: req.GetCaller(), Attachment: req.GetAttachment(), Netns: req.GetNetns()}
	return ask(ctx, c.conf.Socket, c.addPatience(), func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.FindReply, error) {
		return agent.Find(ctx, find)
	})
}

// isUnsure reports whether the agent may have connected the sandbox, or may still do so. The address must not be released before a DEL.
func isUnsure(err error) bool {
	_, unreachable := errors.AsType[*unreachableError](err)
	return err != nil && !unreachable
}

// undone adds to the reason of a failed ADD why it could not be undone, if it could not.
func (c *call) undone(reason, undo error) error {
	if undo == nil {
		return reason
	}
	c.log.Warn("a failed ADD is not undone", "err", undo)
	text := undo.Error()
	if e, ok := errors.AsType[*types.Error](undo); ok {
		text = e.Msg
	}
	return both(reason, fmt.Errorf("it is not undone: %s", text))
}

// delegated puts what a foreign IPAM plugin gave into the request.
func delegated(req *weftv1.AddRequest, leased *types100.Result) {
	for _, ip := range leased.IPs {
		req.DelegatedIps = append(req.DelegatedIps, &weftv1.IP{Address: ip.Address.String(), Gateway: textOf(ip.Gateway)})
	}
	for _, r := range leased.Routes {
		req.DelegatedRoutes = append(req.DelegatedRoutes, &weftv1.Route{Destination: r.Dst.String(), Gateway: textOf(r.GW)})
	}
	if d := leased.DNS; !d.IsEmpty() {
		req.DelegatedDns = &weftv1.DNS{Nameservers: d.Nameservers, Domain: d.Domain, Search: d.Search, Options: d.Options}
	}
}
