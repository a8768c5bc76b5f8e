package cni

import (
	"context"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// collectTime is below CRI-O's thirty seconds.
const collectTime = 25 * time.Second

// collect is GC. Only a list, which may be empty, says what is valid: without one nothing is removed.
func collect(c *call) error {
	if c.conf.Valid == nil {
		return types.NewError(types.ErrInvalidNetworkConfig,
			"GC needs cni.dev/valid-attachments, the list of attachments to keep: without it nothing is removed", "")
	}
	req := &weftv1.CollectRequest{Caller: c.caller(), Network: c.network()}
	for _, a := range *c.conf.Valid {
		req.Valid = append(req.Valid, &weftv1.Attachment{ContainerId: a.ContainerID, IfName: a.IfName})
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
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
