package api

import (
	"os"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
)

// addMemclnt adds the messages about the connection itself.
func (s *Server) addMemclnt() {
	s.table.add(&memclnt.SockclntCreate{})
	s.table.add(&memclnt.SockclntCreateReply{})
	s.table.add(&memclnt.SockclntDeleteReply{})
	s.table.addRequest(&memclnt.SockclntDelete{}, sayGoodbye)
	handle(s, func(c *client, _ *memclnt.ControlPing) (*memclnt.ControlPingReply, error) {
		return &memclnt.ControlPingReply{ClientIndex: c.index, VpePID: uint32(os.Getpid())}, nil
	})
	handle(s, func(*client, *memclnt.MemclntKeepalive) (*memclnt.MemclntKeepaliveReply, error) {
		return nil, nil
	})
	handle(s, func(*client, *memclnt.APIVersions) (*memclnt.APIVersionsReply, error) {
		return &memclnt.APIVersionsReply{APIVersions: apiVersions()}, nil
	})
}

// sayGoodbye answers 1, as VPP does, and ends the connection. The client has often stopped reading by then.
func sayGoodbye(_ *client, _ api.Message, send func(api.Message) error) error {
	if err := send(&memclnt.SockclntDeleteReply{Response: 1}); err != nil {
		return err
	}
	return errGoodbye
}
