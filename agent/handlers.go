package agent

import (
	"github.com/weftnet/weft/eventloop"
)

// handler is a room that handles events.
type handler interface{ Register(l *eventloop.Loop) }

// handlers are the rooms in THE ORDER in which they handle an event; a removal passes them in reverse.
//
//	podmanager     knows the attachment: refuses or repeats it before anybody does work for it
//	ipnet          gives it addresses, memifs and the values that connect it
//	quarantine     forgets what is known of an attachment that is deleted
//	devicemanager  opens the directories of its memifs to its containers
func (a *Agent) handlers() []handler {
	rooms := []handler{a.pods, a.network, a.quarantine}
	if a.devices != nil {
		rooms = append(rooms, a.devices)
	}
	return rooms
}

func register(l *eventloop.Loop, rooms []handler) {
	for _, h := range rooms {
		h.Register(l)
	}
}
