package cni

import (
	"context"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

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
