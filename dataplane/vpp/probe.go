package vpp

import (
	"context"
	"errors"
	"fmt"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/wire"
)

// probeName is the name of the tap that WhyNoTap creates, and of its Linux end.
const probeName = "weft-probe"

// WhyNoTap creates a tap and deletes it again. It returns why the dataplane cannot create taps, "" if it can, and an error if
// that is not known. VPP answers "System call error #1" whatever is missing; nearly always that is /dev/vhost-net.
func (c *Client) WhyNoTap(ctx context.Context) (string, error) {
	create, release, err := newTap(probeName, wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Name: probeName}})
	if err != nil {
		return "", err
	}
	defer release()
	c.exchange(ctx, create)
	refusal := new(api.VPPApiError)
	switch err := create.fault(); {
	case errors.As(err, refusal) && *refusal == api.SYSCALL_ERROR_1:
		return fmt.Sprintf("%s fails with %q: VPP needs /dev/vhost-net (load the kernel module vhost_net, and give VPP's container the device)",
			create.msg.GetMessageName(), refusal.Error()), nil
	case errors.As(err, refusal):
		return fmt.Sprintf("%s fails with %q", create.msg.GetMessageName(), refusal.Error()), nil
	case err != nil:
		return "", err
	}
	i := create.reply.(*tapv2.TapCreateV3Reply).SwIfIndex
	remove := remove(probeName, wire.Interface{Type: wire.TypeTap}, Index(i))
	c.exchange(ctx, remove)
	return "", remove.fault()
}
