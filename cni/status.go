package cni

import (
	"context"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Times of a STATUS: containerd asks while it holds a lock, so an answer is due within two seconds.
const (
	statusTime = 1800 * time.Millisecond
	reachTime  = time.Second
)

func available(c *call) error { return askStatus(c.conf.Socket, c.caller(), c.conf.Name) }

// askStatus returns nil if the agent would serve an ADD; its errors have the codes of STATUS only.
func askStatus(socket string, caller *weftv1.Caller, network string) error {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	answer, err := ask(ctx, socket, patience{silent: reachTime}, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.StatusReply, error) {
		return agent.Status(ctx, &weftv1.StatusRequest{Caller: caller, Network: network})
	})
	if err == nil && answer.GetError() == nil {
		return nil
	}
	refusal := failed("status", err, answer.GetError())
	e, ok := errors.AsType[*types.Error](refusal)
	switch {
	case !ok:
		return types.NewError(types.ErrPluginNotAvailable, refusal.Error(), "")
	case e.Code != types.ErrLimitedConnectivity:
		return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
	}
	return e
}
