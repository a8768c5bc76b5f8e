package agent

import "github.com/weftnet/weft/eventloop"

// handler is a package that handles events.
type handler interface{ Register(l *eventloop.Loop) }

// handlers returns the packages in THE ORDER in which they handle an event; a removal passes them in reverse.
//
//	podmanager     knows the attachment: refuses or repeats it before the others spend work on it
//	ipnet          gives it addresses, memifs and the values that connect it
//	quarantine     drops its record of a deleted attachment
//	devicemanager  opens the directories of its memifs to its containers
func (a *Agent) handlers() []handler {
	list := []handler{a.pods, a.network, a.quarantine}
	if a.devices.manager != nil {
		list = append(list, a.devices.manager)
	}
	return list
}

func register(l *eventloop.Loop, list []handler) {
	for _, h := range list {
		h.Register(l)
	}
}
