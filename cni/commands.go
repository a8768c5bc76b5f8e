package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/internal/jsonempty"
	"github.com/weftnet/weft/proto/deletequeue"
	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// restartTime limits how long an ADD waits for an agent that starts.
const restartTime = 10 * time.Second

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
	if p := c.ipamPlugin(); p != nil {
		return c.addWithIPAM(ctx, p, addition{req, prev})
	}
	answer, err := c.askAdd(ctx, req)
	if err := callError("add "+c.name(req.GetPod()), err, answer.GetError()); err != nil {
		return err
	}
	return c.printResult(prev, answer)
}

func (c *call) askAdd(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	return ask(ctx, c.addEndpoint(), weftv1.RemoteCNIClient.Add, req)
}

func (c *call) endpoint() endpoint {
	return endpoint{socket: c.conf.Socket, unreachable: time.Duration(c.conf.DialTimeout)}
}

func (c *call) addEndpoint() endpoint {
	e := c.endpoint()
	e.starting = restartTime
	return e
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
	if err := c.validateNetns(); err != nil {
		return nil, err
	}
	req := &weftv1.AddRequest{
		Caller: c.caller(), Attachment: c.attachment(), Pod: env.pod(),
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

// printResult prints the result of an ADD. It undoes the ADD if the reply is invalid.
func (c *call) printResult(prev *types100.Result, answer *weftv1.AddReply) error {
	if v := c.passThrough(answer); v != nil {
		return printOutput(v)
	}
	result, err := c.resultOf(prev, answer)
	var versioned types.Result
	if err == nil {
		versioned, err = result.GetAsVersion(c.conf.CNIVersion)
	}
	if err != nil {
		if undo := del(c); undo != nil {
			err = fmt.Errorf("%w (and the undo failed: %w)", err, undo)
		}
		return errorf(types.ErrInternal, "result of the ADD: %v", err)
	}
	return printOutput(versioned)
}

func printOutput(result interface{ Print() error }) error {
	if err := printDocument(result); err != nil {
		return errorf(types.ErrIOFailure, "print the result: %v", err)
	}
	return nil
}

// printDocument adds a newline, which the library omits.
func printDocument(document interface{ Print() error }) error {
	err := document.Print()
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout)
	}
	return err
}

// name describes the attachment in errors.
func (c *call) name(p *weftv1.Pod) string {
	if p.GetName() == "" {
		return fmt.Sprintf("container %.12s %s", c.ContainerID, c.IfName)
	}
	return fmt.Sprintf("pod %s/%s %s", p.GetNamespace(), p.GetName(), c.IfName)
}

const checkTime = 10 * time.Second

func check(c *call) error {
	if err := c.validateEnvironment(); err != nil {
		return err
	}
	env, err := parseArgs(c.CmdArgs.Args)
	if err != nil {
		return err
	}
	prev, err := c.conf.prevResult()
	if err != nil {
		return errorf(types.ErrInvalidNetworkConfig, "%v", err)
	}
	if prev == nil && !c.ipam {
		return errorf(types.ErrInvalidNetworkConfig, "CHECK needs prevResult, the result of the ADD")
	}
	req := c.checkRequest(prev)
	req.Caller = c.caller()
	req.Attachment = c.attachment()
	req.Pod = env.pod()
	req.Netns = c.Netns
	req.Mode = c.mode()

	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	answer, err := ask(ctx, c.endpoint(), weftv1.RemoteCNIClient.Check, req)
	if err := callError("check "+c.name(req.GetPod()), err, answer.GetError()); err != nil {
		return err
	}
	return c.forward(ctx, "CHECK")
}

// checkRequest contains prevResult. It omits addresses without an interface unless the plugin is weft-ipam: weft-cni
// never returns one.
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
		had := &weftv1.IP{Address: ip.Address.String(), Gateway: ipText(ip.Gateway)}
		switch {
		case ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(prev.Interfaces):
			had.Interface = uint32(*ip.Interface)
		case !c.ipam:
			continue
		}
		req.Ips = append(req.Ips, had)
	}
	for _, r := range prev.Routes {
		req.Routes = append(req.Routes, &weftv1.Route{Destination: r.Dst.String(), Gateway: ipText(r.GW)})
	}
	return req
}

// ipText returns "" for nil.
func ipText(ip net.IP) string {
	if len(ip) == 0 {
		return ""
	}
	return ip.String()
}

// delLimits bound the parts of a DEL: kubelet gives a sandbox two minutes to stop.
type delLimits struct {
	call time.Duration
	lock time.Duration // an agent that starts may be draining
	last time.Duration // for the last attempt under the lock
}

var defaultDelLimits = delLimits{call: 30 * time.Second, lock: 10 * time.Second, last: 5 * time.Second}

// del deletes the attachment, and then has the third-party IPAM plugin release its addresses, also if the DEL was only
// queued. If the agent refuses the DEL, the addresses stay and the runtime retries. A plugin that needs the interface
// (dhcp) is called first; if it fails, the attachment is deleted nevertheless.
func del(c *call) error {
	if p := c.ipamPlugin(); p != nil && needsInterface(p.name) {
		return joinErrors(c.releaseAddresses(), c.deleteAttachment())
	}
	if err := c.deleteAttachment(); err != nil {
		return err
	}
	return c.releaseAddresses()
}

// deleteAttachment needs only the key: no namespace, no prevResult, no arguments. If the key is invalid, no attachment
// has it and the DEL succeeds without the agent: the runtime would retry a failing DEL forever.
func (c *call) deleteAttachment() error {
	if err := c.validateKey(); err != nil {
		c.log.Info("nothing to delete", "err", err)
		return nil
	}
	req := &weftv1.DeleteRequest{Caller: c.caller(), Attachment: c.attachment()}
	if env, err := parseArgs(c.CmdArgs.Args); err == nil {
		req.Pod = env.pod()
	}
	answer, err := c.delete(req, c.plugin.del.call)
	if !isUnavailable(answer, err) {
		return c.deleteError(req, answer, err)
	}
	c.log.Info("agent does not serve, DEL is queued", "err", err, "queue", c.conf.DeleteQueue)
	return c.enqueue(req)
}

func (c *call) delete(req *weftv1.DeleteRequest, limit time.Duration) (*weftv1.DeleteReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return ask(ctx, endpoint{socket: c.conf.Socket}, weftv1.RemoteCNIClient.Delete, req)
}

func (c *call) deleteError(req *weftv1.DeleteRequest, answer *weftv1.DeleteReply, err error) error {
	return callError("delete "+c.name(req.GetPod()), err, answer.GetError())
}

// isUnavailable reports whether the agent did not process the DEL, and will not do so soon.
func isUnavailable(answer *weftv1.DeleteReply, err error) bool {
	if err == nil {
		return isStarting(answer) || answer.GetError().GetCode() == uint32(errTimeout)
	}
	_, unreachable := errors.AsType[*unreachableError](err)
	code := status.Code(err)
	return unreachable || code == codes.Unavailable || code == codes.DeadlineExceeded ||
		errors.Is(err, context.DeadlineExceeded)
}

// enqueue queues the DEL for the next start of the agent. Under the lock of the queue, which excludes a starting agent,
// it first tries the agent once more.
func (c *call) enqueue(req *weftv1.DeleteRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.plugin.del.lock)
	defer cancel()
	queue, err := deletequeue.Open(c.conf.DeleteQueue)
	if err != nil {
		return errorf(types.ErrIOFailure, "queue the DEL: %v", err)
	}
	var refusal error
	key := deletequeue.Key{Network: c.network(), ContainerID: c.ContainerID, IfName: c.IfName}
	err = queue.AddUnless(ctx, deletequeue.NewEntry(key, time.Now()), func() bool {
		answer, err := c.delete(req, c.plugin.del.last)
		if isUnavailable(answer, err) {
			return false
		}
		refusal = c.deleteError(req, answer, err)
		return true
	})
	switch {
	case err == nil:
		return refusal
	case errors.Is(err, deletequeue.ErrFull), errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, "queue the DEL: "+err.Error(), "is weft-agent running?")
	}
	return errorf(types.ErrIOFailure, "queue the DEL: %v", err)
}

// gcTime is less than CRI-O's timeout of 30 seconds.
const gcTime = 25 * time.Second

// gc removes all attachments that are not in the list of valid attachments, which may be empty or null. Without a list
// it succeeds and removes no attachment: cnitool, and libcni without arguments, send a DEL for each cached attachment
// and then a GC without a list.
func gc(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), gcTime)
	defer cancel()
	if !c.conf.Valid.present {
		c.log.Warn("GC without a list of valid attachments: nothing removed", "network", c.conf.Name)
		return c.forward(ctx, "GC")
	}
	req := &weftv1.CollectRequest{Caller: c.caller(), Network: c.network()}
	for _, a := range c.conf.Valid.list {
		req.Valid = append(req.Valid, &weftv1.Attachment{ContainerId: a.ContainerID, IfName: a.IfName})
	}
	answer, err := ask(ctx, c.endpoint(), weftv1.RemoteCNIClient.Collect, req)
	err = callError("collect "+c.conf.Name, err, answer.GetError())
	if err == nil {
		c.log.Info("collected", "network", c.conf.Name, "removed", len(answer.GetRemoved()))
	}
	return joinErrors(err, c.forward(ctx, "GC"))
}

// Timeouts of a STATUS: containerd holds a lock meanwhile, so the plugin answers within two seconds.
const (
	statusTime = 1800 * time.Millisecond
	reachTime  = time.Second
)

// grace is how long STATUS succeeds after the agent stopped serving. Meanwhile ADDs fail with code 11 and are retried,
// which costs less than a node that is not ready.
const grace = time.Minute

func reportStatus(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	unavailable, err := askStatus(ctx, c.conf.Socket, &weftv1.StatusRequest{Caller: c.caller(), Network: c.network()})
	if err != nil && (!unavailable || !serving.Within(c.conf.Socket, grace)) {
		return err
	}
	return toStatusError(c.forward(ctx, "STATUS"))
}

// askStatus returns nil if the agent would serve an ADD; its errors have only codes of STATUS. unavailable reports
// whether the agent does not answer in time, is not reachable or starts.
func askStatus(ctx context.Context, socket string, req *weftv1.StatusRequest) (unavailable bool, err error) {
	answer, err := ask(ctx, endpoint{socket: socket, unreachable: reachTime}, weftv1.RemoteCNIClient.Status, req)
	unavailable = err != nil && isRetryable(err) || status.Code(err) == codes.DeadlineExceeded ||
		answer.GetError().GetDetails() == detailRestoring
	return unavailable, toStatusError(callError("status", err, answer.GetError()))
}

// toStatusError replaces a code that a STATUS must not return.
func toStatusError(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*types.Error](err)
	switch {
	case !ok:
		return errorf(types.ErrPluginNotAvailable, "%v", err)
	case e.Code != types.ErrLimitedConnectivity:
		return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
	}
	return e
}
