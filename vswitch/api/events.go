package api

import (
	"sync"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/model"
)

// subscriptions are the clients that asked for interface events, with the pid that each gave.
type subscriptions struct {
	mu   sync.Mutex
	pids map[*client]uint32
}

// set subscribes or unsubscribes c. What is so already is an error, as in VPP.
func (s *subscriptions) set(c *client, pid uint32, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, subscribed := s.pids[c]; subscribed == on {
		return model.InvalidRegistration
	}
	if on {
		s.pids[c] = pid
	} else {
		delete(s.pids, c)
	}
	return nil
}

func (s *subscriptions) remove(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pids, c)
}

// InterfaceChanged tells the clients that want to know. It never waits for one of them.
func (s *Server) InterfaceChanged(e model.InterfaceEvent) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for c, pid := range s.events.pids {
		msg := &interfaces.SwInterfaceEvent{PID: pid, SwIfIndex: interface_types.InterfaceIndex(e.Index),
			Flags: statusFlags(e.AdminUp, e.LinkUp), Deleted: e.Deleted}
		data, err := c.encode(msg, 0)
		if err == nil {
			err = c.out.post(data)
		}
		if err != nil {
			s.log.Debug("event not sent", "client", c.name, "err", err)
		}
	}
}

func statusFlags(adminUp, linkUp bool) interface_types.IfStatusFlags {
	var flags interface_types.IfStatusFlags
	if adminUp {
		flags |= interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	if linkUp {
		flags |= interface_types.IF_STATUS_API_FLAG_LINK_UP
	}
	return flags
}
