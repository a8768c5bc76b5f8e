package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

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

// isUnsure is true if the agent may have wired the sandbox, or may still do so: nobody else is to get the address then
// until it has been told not to.
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
