package cni

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

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
