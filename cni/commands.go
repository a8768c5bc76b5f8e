package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/proto/deletequeue"
	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// restartTime is how long an ADD waits for an agent that says it is starting.
const restartTime = 10 * time.Second

func add(c *call) error {
	req, err := c.addRequest()
	if err != nil {
		return err
	}
	prev, err := c.earlier()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.conf.Timeout))
	defer cancel()
	if f := c.foreign(); f != nil {
		return c.addWith(ctx, f, addition{req, prev})
	}
	answer, err := c.askAdd(ctx, req)
	if err != nil || answer.GetError() != nil {
		return failed("add "+c.name(req.GetPod()), err, answer.GetError())
	}
	return c.printResult(prev, answer)
}

func (c *call) askAdd(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	return ask(ctx, c.conf.Socket, c.addPatience(), func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.AddReply, error) {
		return agent.Add(ctx, req)
	})
}

func (c *call) addPatience() patience {
	return patience{silent: time.Duration(c.conf.DialTimeout), starting: restartTime}
}

func (c *call) addRequest() (*weftv1.AddRequest, error) {
	if err := c.validEnvironment(); err != nil {
		return nil, err
	}
	env, err := parseArgs(c.CmdArgs.Args)
	if err != nil {
		return nil, err
	}
	ips, mac, err := c.requested(env)
	if err != nil {
		return nil, err
	}
	if err := c.foreignNetns(); err != nil {
		return nil, err
	}
	req := &weftv1.AddRequest{
		Caller: c.caller(), Attachment: c.attachment(), Pod: env.pod(),
		Netns: c.Netns, Mode: c.mode(), DeviceId: firstText(c.conf.RuntimeConfig.DeviceID, c.conf.DeviceID),
		InterfaceNetwork: c.conf.Network, InterfaceType: c.conf.InterfaceType, InterfaceOptions: string(c.conf.Options),
	}
	if req.Mode != modeChained { // there they are for the main interface, which has them
		req.Ips, req.Mac = ips, mac
	}
	if req.Pools = c.conf.Pools; c.conf.Pool != "" {
		req.Pools = []string{c.conf.Pool}
	}
	if given := c.conf.RuntimeConfig.Annotations; given != nil {
		req.Annotations, req.HasAnnotations = relevant(*given), true
	}
	return req, nil
}

// relevant leaves out what the agent does not read: annotations of a pod may have 256 KiB.
func relevant(annotations map[string]string) map[string]string {
	ours := make(map[string]string)
	for key, value := range annotations {
		domain, _, _ := strings.Cut(key, "/")
		if domain == "contivpp.io" || domain == "k8s.v1.cni.cncf.io" || domain == "kubernetes.io" {
			ours[key] = value
		}
	}
	return ours
}

// printResult prints what the runtime gets. A reply that makes no result is undone, as the runtime gets an error.
func (c *call) printResult(prev *types100.Result, answer *weftv1.AddReply) error {
	if v := c.unchanged(answer); v != nil {
		return written(v)
	}
	result, err := c.resultOf(prev, answer)
	var versioned types.Result
	if err == nil {
		versioned, err = result.GetAsVersion(c.conf.CNIVersion)
	}
	if err != nil {
		if undo := del(c); undo != nil {
			err = fmt.Errorf("%w (and it is not undone: %w)", err, undo)
		}
		return types.NewError(types.ErrInternal, "result of the ADD: "+err.Error(), "")
	}
	return written(versioned)
}

func written(result interface{ Print() error }) error {
	if err := printed(result); err != nil {
		return types.NewError(types.ErrIOFailure, "print the result: "+err.Error(), "")
	}
	return nil
}

// printed ends the document with a newline, which the library does not.
func printed(document interface{ Print() error }) error {
	err := document.Print()
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout)
	}
	return err
}

// name is what people call the attachment of a call.
func (c *call) name(p *weftv1.Pod) string {
	if p.GetName() == "" {
		return fmt.Sprintf("container %.12s %s", c.ContainerID, c.IfName)
	}
	return fmt.Sprintf("pod %s/%s %s", p.GetNamespace(), p.GetName(), c.IfName)
}

const checkTime = 10 * time.Second

func check(c *call) error {
	if err := c.validEnvironment(); err != nil {
		return err
	}
	env, err := parseArgs(c.CmdArgs.Args)
	if err != nil {
		return err
	}
	prev, err := c.conf.prevResult()
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	if prev == nil && !c.ipam {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs prevResult, the result of the ADD", "")
	}
	req := c.checkRequest(prev)
	req.Caller, req.Attachment, req.Pod = c.caller(), c.attachment(), env.pod()
	req.Netns, req.Mode = c.Netns, c.mode()

	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	wait := patience{silent: time.Duration(c.conf.DialTimeout)}
	answer, err := ask(ctx, c.conf.Socket, wait, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.CheckReply, error) {
		return agent.Check(ctx, req)
	})
	if err != nil || answer.GetError() != nil {
		return failed("check "+c.name(req.GetPod()), err, answer.GetError())
	}
	return c.forward(ctx, "CHECK")
}

// checkRequest sends what the runtime remembers. An address of no interface is not ours: Weft's always have one, unless
// it gave them to another plugin.
func (c *call) checkRequest(prev *types100.Result) *weftv1.CheckRequest {
	req := &weftv1.CheckRequest{}
	if prev == nil {
		return req
	}
	for _, in := range prev.Interfaces {
		req.Interfaces = append(req.Interfaces, &weftv1.Interface{
			Name: in.Name, Mac: in.Mac, Mtu: uint32(max(in.Mtu, 0)), Sandbox: in.Sandbox, SocketPath: in.SocketPath,
		})
	}
	for _, ip := range prev.IPs {
		had := &weftv1.IP{Address: ip.Address.String(), Gateway: textOf(ip.Gateway)}
		switch {
		case ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(prev.Interfaces):
			had.Interface = uint32(*ip.Interface)
		case !c.ipam:
			continue
		}
		req.Ips = append(req.Ips, had)
	}
	for _, r := range prev.Routes {
		req.Routes = append(req.Routes, &weftv1.Route{Destination: r.Dst.String(), Gateway: textOf(r.GW)})
	}
	return req
}

// textOf gives "" for no address, which net.IP calls <nil>.
func textOf(ip interface{ String() string }) string {
	if text := ip.String(); text != "<nil>" {
		return text
	}
	return ""
}

// delLimits bound the parts of a DEL: kubelet gives a sandbox two minutes to stop.
type delLimits struct {
	call time.Duration
	lock time.Duration // an agent that starts may be draining
	last time.Duration // for the last attempt under the lock
}

var defaultDelLimits = delLimits{call: 30 * time.Second, lock: 10 * time.Second, last: 5 * time.Second}

// del deletes the attachment, and then calls the foreign IPAM plugin to release its addresses, also if the DEL was only queued. If the agent
// refuses the DEL, the addresses stay and the runtime retries. A plugin that asks by the interface (dhcp) is called first, while the
// interface exists, and its failure does not keep the attachment.
func del(c *call) error {
	if f := c.foreign(); f != nil && asksByLink(f.kind) {
		return both(c.giveBack(), c.deleteAttachment())
	}
	if err := c.deleteAttachment(); err != nil {
		return err
	}
	return c.giveBack()
}

// deleteAttachment needs nothing but the key: no namespace, no prevResult, no arguments. It succeeds without an agent where no
// attachment can have the key: a runtime repeats a DEL that fails, and this one would fail for ever.
func (c *call) deleteAttachment() error {
	if err := c.possibleKey(); err != nil {
		c.log.Info("nothing to delete", "err", err)
		return nil
	}
	req := &weftv1.DeleteRequest{Caller: c.caller(), Attachment: c.attachment()}
	if env, err := parseArgs(c.CmdArgs.Args); err == nil {
		req.Pod = env.pod()
	}
	answer, err := c.delete(req, c.plugin.del.call)
	if !isAway(answer, err) {
		return c.deleted(req, answer, err)
	}
	c.log.Info("agent does not serve, DEL is queued", "err", err, "queue", c.conf.DeleteQueue)
	return c.enqueue(req)
}

func (c *call) delete(req *weftv1.DeleteRequest, limit time.Duration) (*weftv1.DeleteReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return ask(ctx, c.conf.Socket, patience{}, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.DeleteReply, error) {
		return agent.Delete(ctx, req)
	})
}

func (c *call) deleted(req *weftv1.DeleteRequest, answer *weftv1.DeleteReply, err error) error {
	if err == nil && answer.GetError() == nil {
		return nil
	}
	return failed("delete "+c.name(req.GetPod()), err, answer.GetError())
}

// isAway is true when the agent has not served the DEL and will not soon.
func isAway(answer *weftv1.DeleteReply, err error) bool {
	if err == nil {
		return isStarting(answer) || answer.GetError().GetCode() == uint32(errTimeout)
	}
	_, unreachable := errors.AsType[*unreachableError](err)
	code := status.Code(err)
	return unreachable || code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// enqueue leaves the DEL to the agent's next start, unless the agent serves it now
// that no other can be starting.
func (c *call) enqueue(req *weftv1.DeleteRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.plugin.del.lock)
	defer cancel()
	queue, err := deletequeue.Open(c.conf.DeleteQueue)
	if err != nil {
		return types.NewError(types.ErrIOFailure, "queue the DEL: "+err.Error(), "")
	}
	var refusal error
	key := deletequeue.Key{Network: c.network(), ContainerID: c.ContainerID, IfName: c.IfName}
	err = queue.AddUnless(ctx, deletequeue.NewEntry(key, time.Now()), func() bool {
		answer, err := c.delete(req, c.plugin.del.last)
		if isAway(answer, err) {
			return false
		}
		refusal = c.deleted(req, answer, err)
		return true
	})
	switch {
	case err == nil:
		return refusal
	case errors.Is(err, deletequeue.ErrFull), errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, "queue the DEL: "+err.Error(), "is weft-agent running?")
	}
	return types.NewError(types.ErrIOFailure, "queue the DEL: "+err.Error(), "")
}

// collectTime is below CRI-O's thirty seconds.
const collectTime = 25 * time.Second

// collect is GC. It removes attachments that the list of valid ones, which may be empty or null, does not have. Without a list it removes
// nothing and succeeds: cnitool, and libcni without arguments, send a DEL for each cached attachment and then a GC without a list.
func collect(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	if !c.conf.Valid.given {
		c.log.Warn("collected nothing: the runtime did not say which attachments are valid", "network", c.conf.Name)
		return c.forward(ctx, "GC")
	}
	req := &weftv1.CollectRequest{Caller: c.caller(), Network: c.network()}
	for _, a := range c.conf.Valid.list {
		req.Valid = append(req.Valid, &weftv1.Attachment{ContainerId: a.ContainerID, IfName: a.IfName})
	}
	wait := patience{silent: time.Duration(c.conf.DialTimeout)}
	answer, err := ask(ctx, c.conf.Socket, wait, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.CollectReply, error) {
		return agent.Collect(ctx, req)
	})
	var refusal error
	if err != nil || answer.GetError() != nil {
		refusal = failed("collect "+c.conf.Name, err, answer.GetError())
	} else {
		c.log.Info("collected", "network", c.conf.Name, "removed", len(answer.GetRemoved()))
	}
	return both(refusal, c.forward(ctx, "GC"))
}

// Times of a STATUS: containerd asks while it holds a lock, so an answer is due within two seconds.
const (
	statusTime = 1800 * time.Millisecond
	reachTime  = time.Second
)

// grace is how long after an agent served pods STATUS takes it for granted that one will soon: ADDs are told to come again
// meanwhile, which costs less than a node that is not ready.
const grace = time.Minute

func available(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	away, err := askStatus(ctx, c.conf.Socket, &weftv1.StatusRequest{Caller: c.caller(), Network: c.network()})
	if err != nil && (!away || !serving.Within(c.conf.Socket, grace)) {
		return err
	}
	return asStatus(c.forward(ctx, "STATUS"))
}

// askStatus returns nil if the agent would serve an ADD; its errors have the codes of STATUS only. away reports
// whether the agent does not answer in time, is not reachable or starts.
func askStatus(ctx context.Context, socket string, req *weftv1.StatusRequest) (away bool, err error) {
	answer, err := ask(ctx, socket, patience{silent: reachTime}, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.StatusReply, error) {
		return agent.Status(ctx, req)
	})
	if err == nil && answer.GetError() == nil {
		return false, nil
	}
	away = err != nil && worthRetrying(err) || status.Code(err) == codes.DeadlineExceeded || answer.GetError().GetDetails() == restoring
	return away, asStatus(failed("status", err, answer.GetError()))
}

func asStatus(refusal error) error {
	if refusal == nil {
		return nil
	}
	e, ok := errors.AsType[*types.Error](refusal)
	switch {
	case !ok:
		return types.NewError(types.ErrPluginNotAvailable, refusal.Error(), "")
	case e.Code != types.ErrLimitedConnectivity:
		return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
	}
	return e
}
