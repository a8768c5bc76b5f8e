package forward

// drainBursts bounds what is drained, as a port may have more to come all the time: a tap's queue is of 500 frames, most
// rings are of 1024.
const drainBursts = 1024 / rxBurst

// drain takes in what waits at the interface's port, such as a pod's last words, before control takes the interface away
// from where its frames go. It returns when they are sent on, which needs Run to run or to have ended.
func (e *Engine) drain(index uint32) {
	if a := e.ports.Load().at(index); a != nil {
		a.owner.post(func(w *worker) { w.drain(a) })
	}
}

func (w *worker) drain(a *attachment) {
	for range drainBursts {
		if w.ports.at(a.index) != a || w.receive(a) < rxBurst {
			return
		}
	}
}
