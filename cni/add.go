package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weftnet/weft/internal/jsonempty"
	"github.com/weftnet/weft/internal/netaddr"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func add(c *call) error {
	req, err := c.addRequest()
	if err != nil {
		return err
	}
	prev, err := c.addPrevResult()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.conf.Timeout))
	defer cancel()
	a := &addition{
		agent: c.conf.addEndpoint(), req: req, what: "add " + c.key().describe(req.GetPod()),
		result: c.composer(prev), undo: c.deletion(), log: c.log,
	}
	return a.run(ctx)
}

func (c *call) addRequest() (*weftv1.AddRequest, error) {
	if err := c.validateEnvironment(); err != nil {
		return nil, err
	}
	env, err := parseArgs(c.CmdArgs.Args)
	if err != nil {
		return nil, err
	}
	ips, mac, err := c.requestedAddresses(env)
	if err != nil {
		return nil, err
	}
	if err := c.netns().validateFile(); err != nil {
		return nil, err
	}
	req := &weftv1.AddRequest{
		Caller: c.caller(), Attachment: c.key().message(), Pod: env.pod(),
		Netns: c.Netns, Mode: c.mode(), DeviceId: cmp.Or(c.conf.RuntimeConfig.DeviceID, c.conf.DeviceID),
		InterfaceNetwork: c.conf.Network, InterfaceType: c.conf.InterfaceType, InterfaceOptions: string(c.conf.Options),
	}
	if req.Mode != modeChained { // the plugin before has applied them to the main interface
		req.Ips = ips
		req.Mac = mac
	}
	if req.Pools = c.conf.Pools; c.conf.Pool != "" {
		req.Pools = []string{c.conf.Pool}
	}
	if limits := c.conf.RuntimeConfig.Bandwidth; !c.role.ipam && !jsonempty.Is(limits) {
		req.Bandwidth = string(limits)
	}
	if given := c.conf.RuntimeConfig.Annotations; given != nil {
		req.Annotations = agentAnnotations(*given)
		req.HasAnnotations = true
	}
	return req, nil
}

// agentAnnotations omits annotations that the agent does not read: a pod may have 256 KiB of them.
func agentAnnotations(annotations map[string]string) map[string]string {
	ours := make(map[string]string)
	for key, value := range annotations {
		domain, _, _ := strings.Cut(key, "/")
		if domain == "contivpp.io" || domain == "k8s.v1.cni.cncf.io" || domain == "kubernetes.io" {
			ours[key] = value
		}
	}
	return ours
}

// cniArgs are the keys of the configuration's args that Weft reads.
type cniArgs struct {
	CNI struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	} `json:"cni"`
}

// requestedAddresses returns the requested IP addresses and MAC. runtimeConfig takes precedence over args, and args
// over CNI_ARGS.
func (c *call) requestedAddresses(env *envArgs) (ips []string, mac string, err error) {
	var args cniArgs
	if json.Unmarshal(c.conf.Args, &args) != nil {
		args = cniArgs{} // invalid args are ignored
	}
	// weft-ipam gets the capabilities of its caller
	if err := c.conf.RuntimeConfig.validateCapabilities(); err != nil && !c.role.ipam {
		return nil, "", err
	}
	ips = firstList(c.conf.RuntimeConfig.IPs, args.CNI.IPs, splitList(string(env.IP)))
	for _, ip := range ips {
		if !isAddress(ip) {
			return nil, "", errorf(types.ErrInvalidNetworkConfig,
				"%s: requested address %.60q is invalid: use an IPv4 or IPv6 address, with or without a prefix length",
				c.key().describe(env.pod()), ip)
		}
	}
	mac = cmp.Or(c.conf.RuntimeConfig.MAC, args.CNI.MAC, string(env.MAC))
	if _, err := netaddr.ParseMAC(mac); mac != "" && err != nil {
		return nil, "", errorf(types.ErrInvalidNetworkConfig,
			"%s: requested MAC %.60q is invalid: use six octets as 02:00:00:00:00:01", c.key().describe(env.pod()), mac)
	}
	return ips, mac, nil
}

func isAddress(text string) bool {
	_, addr := netip.ParseAddr(text)
	_, prefix := netip.ParsePrefix(text)
	return addr == nil || prefix == nil
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func firstList(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}

// addPrevResult returns the result of the plugins before this one. It is required in mode chained. Other modes ignore
// an invalid one.
func (c *call) addPrevResult() (*types100.Result, error) {
	if c.ipam {
		return nil, nil
	}
	prev, err := c.conf.prevResult()
	switch {
	case c.mode() != modeChained && err != nil:
		c.log.Warn("ignoring invalid prevResult", "err", err)
	case c.mode() != modeChained:
	case err != nil:
		return nil, errorf(types.ErrInvalidNetworkConfig, "%v", err)
	case prev == nil:
		return nil, errorf(types.ErrInvalidNetworkConfig,
			"mode chained needs prevResult: weft-cni cannot be the first plugin of the list")
	}
	return prev, nil
}

// addition is an ADD in progress.
type addition struct {
	agent  endpoint
	req    *weftv1.AddRequest
	what   string // for errors
	result composer
	undo   *deletion
	log    *log
}

func (a *addition) run(ctx context.Context) error {
	if a.undo.ipam != nil {
		return a.runWithIPAM(ctx, a.undo.ipam)
	}
	answer, err := a.ask(ctx)
	if err := callError(a.what, err, answer.GetError()); err != nil {
		return err
	}
	return a.printResult(answer)
}

func (a *addition) ask(ctx context.Context) (*weftv1.AddReply, error) {
	return ask(ctx, a.agent, weftv1.RemoteCNIClient.Add, a.req)
}

// runWithIPAM is an ADD with addresses of a third-party IPAM plugin. It does not execute the plugin if the attachment
// already exists: the undo of a second ADD would release the address of the first.
func (a *addition) runWithIPAM(ctx context.Context, p *ipamPlugin) error {
	if _, err := p.path(); err != nil {
		return err // before an operation that only the plugin can undo
	}
	existing, err := a.find(ctx)
	if err := callError(a.what, err, existing.GetError()); err != nil {
		return err
	}
	if existing.GetFound() != nil {
		return a.printResult(existing.GetFound())
	}
	a.req.Ips = nil // the IPAM plugin reads them from the configuration
	if needsInterface(p.name) {
		return a.runWithInterfaceIPAM(ctx, p)
	}
	leased, err := p.lease(ctx)
	if err != nil {
		return a.withUndoError(err, p.release())
	}
	setDelegated(a.req, leased)
	answer, err := a.ask(ctx)
	failure := callError(a.what, err, answer.GetError())
	switch {
	case failure == nil:
		return a.printResult(answer)
	case outcomeUnknown(err):
		return a.withUndoError(failure, a.undo.run())
	}
	return a.withUndoError(failure, p.release())
}

// runWithInterfaceIPAM is an ADD with an IPAM plugin that needs the interface. The agent creates the interface without
// addresses, and gets them in a second call. Until then the attachment awaits addresses, even after a restart of the
// agent. A failure deletes the attachment.
func (a *addition) runWithInterfaceIPAM(ctx context.Context, p *ipamPlugin) error {
	a.req.AwaitsAddresses = true
	answer, err := a.ask(ctx)
	failure := callError(a.what, err, answer.GetError())
	switch {
	case outcomeUnknown(err):
		return a.withUndoError(failure, a.undo.deleteAttachment())
	case failure != nil:
		return failure
	}
	leased, err := p.lease(ctx)
	if err != nil {
		return a.withUndoError(err, a.undo.run())
	}
	setDelegated(a.req, leased)
	answer, err = ask(ctx, a.agent, weftv1.RemoteCNIClient.Address, a.req)
	if failure := callError(a.what, err, answer.GetError()); failure != nil {
		return a.withUndoError(failure, a.undo.run())
	}
	return a.printResult(answer)
}

func (a *addition) find(ctx context.Context) (*weftv1.FindReply, error) {
	find := &weftv1.FindRequest{Caller: a.req.GetCaller(), Attachment: a.req.GetAttachment(), Netns: a.req.GetNetns()}
	return ask(ctx, a.agent, weftv1.RemoteCNIClient.Find, find)
}

// outcomeUnknown reports whether the agent may have connected the sandbox, or may still do so. If so, addresses must
// not be released before a DEL.
func outcomeUnknown(err error) bool {
	_, unreachable := errors.AsType[*unreachableError](err)
	return err != nil && !unreachable
}

// withUndoError adds the error of the undo, if any, to the reason why an ADD failed.
func (a *addition) withUndoError(reason, undo error) error {
	if undo == nil {
		return reason
	}
	a.log.Warn("undo of a failed ADD failed", "err", undo)
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

// printResult prints the result of an ADD. It undoes the ADD if the reply is invalid.
func (a *addition) printResult(answer *weftv1.AddReply) error {
	if v := a.result.passThrough(answer); v != nil {
		return printOutput(v)
	}
	versioned, err := a.result.compose(answer)
	if err != nil {
		if undo := a.undo.run(); undo != nil {
			err = fmt.Errorf("%w (and the undo failed: %w)", err, undo)
		}
		return errorf(types.ErrInternal, "result of the ADD: %v", err)
	}
	return printOutput(versioned)
}
