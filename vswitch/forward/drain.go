package forward

// mostDrained bounds how many frames are drained, as a port may have more to come all the time: a tap's queues are of 500 frames
// each, most rings are of 1024.
const mostDrained = 1024

// drain takes in what waits at the interface's port, such as a pod's last words, before control takes the interface away
// from where its frames go. It returns when they are sent on, which needs Run to run or to have ended.
func (e *Engine) drain(index uint32) {
	a := e.ports.Load().at(index)
	if a == nil {
		return
	}
	for _, i := range a.inlets {
		i.owner.post(func(w *worker) { w.drain(i) })
	}
}

func (w *worker) drain(i *inlet) {
	w.turnAt = w.stopwatch()
	for drained := 0; drained < mostDrained && w.ports.at(i.of.index) == i.of; {
		n, more := w.receive(i)
		if drained += n; !more {
			return
		}
	}
}
