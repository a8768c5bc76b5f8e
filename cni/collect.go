package cni

import (
	"context"
	"time"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

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
