package agent

import (
	"context"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Devices lists the allocations. A node without devices has none.
func (o *operations) Devices(context.Context, *weftv1.DevicesRequest) (*weftv1.DevicesReply, error) {
	if o.devices == nil {
		return &weftv1.DevicesReply{}, nil
	}
	stats := o.devices.Stats()
	reply := &weftv1.DevicesReply{Registered: stats.Registered, Free: uint32(stats.Devices["free"])}
	for _, a := range o.devices.Allocations() {
		row := &weftv1.Allocation{
			Id: a.ID, Socket: a.Socket, Devices: a.Devices, Directory: a.Directory, Created: stamp(a.Created), Container: a.Container,
		}
		if !a.Pod.IsZero() {
			row.Pod = &weftv1.Pod{Namespace: a.Pod.Namespace, Name: a.Pod.Name, Uid: a.Pod.UID}
		}
		reply.Allocations = append(reply.Allocations, row)
	}
	return reply, nil
}
