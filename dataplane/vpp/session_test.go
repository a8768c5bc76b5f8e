package vpp

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/codec"
)

// FuzzReceive sends arbitrary data to a session: it ends, with all requests.
func FuzzReceive(f *testing.F) {
	message := func(m api.Message, id, context byte) []byte {
		data, err := codec.EncodeMsg(m, uint16(id))
		if err != nil {
			f.Fatal(err)
		}
		data[5] = context
		return appendFrame(nil, data)
	}
	route := &ip.IPRouteV2Details{Route: ip.IPRouteV2{NPaths: 1, Paths: []fib_types.FibPath{{SwIfIndex: 1}}}}
	f.Add(message(&ip.IPRouteAddDelReply{Retval: -3}, 2, 1))
	f.Add(append(message(route, 4, 2), message(route, 4, 2)...))
	f.Add(message(route, 2, 1))
	f.Add(appendFrame(nil, []byte{0, 2, 0, 0, 0, 1}))
	f.Add(appendFrame(nil, []byte{0, 4, 0, 0, 0, 2, 9}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		conn, far := net.Pipe()
		defer far.Close()
		s := &session{
			conn:    conn,
			read:    bufio.NewReader(io.LimitReader(bytes.NewReader(stream), 1<<20)),
			ended:   make(chan struct{}),
			pending: newPending(),
			ids: messageIDs{messageKey(&ip.IPRouteAddDel{}): 1, messageKey(&ip.IPRouteAddDelReply{}): 2,
				messageKey(&ip.IPRouteV2Dump{}): 3, messageKey(&ip.IPRouteV2Details{}): 4, messageKey(Needed[0]): 5,
				messageKey(Needed[1]): 6},
		}
		requests := []*request{
			ask("plain", &ip.IPRouteAddDel{}, &ip.IPRouteAddDelReply{}),
			askAll(&ip.IPRouteV2Dump{}, &ip.IPRouteV2Details{}),
		}
		for _, r := range requests {
			if _, err := s.enlist(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.receive()
		for _, r := range requests {
			<-r.done
			if r.dump && r.err == nil && !bytes.Contains(stream, []byte{0, 6}) {
				t.Errorf("a dump without end succeeded with %d details", len(r.details))
			}
		}
	})
}
