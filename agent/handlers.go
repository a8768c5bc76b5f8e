package agent

import (
	"github.com/weftnet/weft/eventloop"
)

// handler is a room that handles events.
type handler interface{ Register(l *eventloop.Loop) }

// register is THE ORDER in which rooms handle an event; a removal passes them in reverse.
//
//	podmanager   knows the attachment: refuses or repeats it before anybody does work for it
//	ipnet        gives it addresses and the values that connect it
func register(l *eventloop.Loop, podmanager, ipnet handler) {
	for _, h := range []handler{podmanager, ipnet} {
		h.Register(l)
	}
}
