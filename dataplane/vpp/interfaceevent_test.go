package vpp

import (
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/internal/netnstest"
)

// Another client changes the dataplane, as an operator at its command line would.
func TestAnInterfaceThatIsSetDownOrDeletedIsReported(t *testing.T) {
	netnstest.Require(t)
	r := newRuins(t)
	disturbed := make(chan Index, 16)
	client := connect(t, r.socket, Options{Events: Events{Disturbed: func(i Index) { disturbed <- i }}})
	other := connect(t, r.socket, Options{})
	reply := &interfaces.CreateLoopbackInstanceReply{}
	do := func(r *request) {
		t.Helper()
		other.exchange(t.Context(), r)
		if err := r.fault(); err != nil {
			t.Fatal(err)
		}
	}
	do(ask("create", &interfaces.CreateLoopbackInstance{}, reply))
	flags := func(f interface_types.IfStatusFlags) {
		t.Helper()
		do(ask("flags", &interfaces.SwInterfaceSetFlags{SwIfIndex: reply.SwIfIndex, Flags: f},
			&interfaces.SwInterfaceSetFlagsReply{}))
	}
	await := func(what string) {
		t.Helper()
		for limit := time.After(20 * time.Second); ; {
			select {
			case i := <-disturbed:
				if i == Index(reply.SwIfIndex) {
					return
				}
			case <-limit:
				t.Fatalf("%s: no event", what)
			}
		}
	}
	flags(interface_types.IF_STATUS_API_FLAG_ADMIN_UP)
	if err := client.Ping(t.Context()); err != nil { // the event of before, if any, has come
		t.Fatal(err)
	}
	for len(disturbed) > 0 {
		<-disturbed
	}
	flags(0)
	await("set down")
	flags(interface_types.IF_STATUS_API_FLAG_ADMIN_UP)
	do(ask("delete", &interfaces.DeleteLoopback{SwIfIndex: reply.SwIfIndex}, &interfaces.DeleteLoopbackReply{}))
	await("deleted")
}
