package vpp

import (
	"context"
	"os"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// watchInterfaces asks the dataplane for events, and passes on those of interfaces that were deleted or set down.
func (s *session) watchInterfaces(ctx context.Context, limit time.Duration, disturbed func(Index)) error {
	id, err := s.id(&interfaces.SwInterfaceEvent{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.event, s.onEvent = id, func(data []byte) {
		var e interfaces.SwInterfaceEvent
		if codec.DecodeMsg(data, &e) == nil && (e.Deleted || e.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0) {
			disturbed(Index(e.SwIfIndex))
		}
	}
	s.mu.Unlock()
	r := ask("want_interface_events", &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: uint32(os.Getpid())}, &interfaces.WantInterfaceEventsReply{})
	s.exchange(ctx, limit, []*request{r})
	return r.fault()
}

// InterfaceOf returns the object of an interface of the dataplane.
func InterfaceOf(view kvscheduler.View, i Index) (kvscheduler.Ref, bool) {
	for name := range view.All(wire.KindInterface) {
		ref := kvscheduler.Ref{Kind: wire.KindInterface, Name: name}
		if _, meta, ok := view.Applied(ref); ok && meta == any(i) {
			return ref, true
		}
	}
	return kvscheduler.Ref{}, false
}
