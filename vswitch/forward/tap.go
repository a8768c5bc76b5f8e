package forward

import "github.com/weftnet/weft/vswitch/port"

// OpenTap makes a tap and lets interface index receive and send through it. The interface may be set before or after;
// until SetInterface and Publish its frames are dropped. Errors: port.ErrNameInUse, port.ErrNamespaceGone, ErrPortExists,
// and the kernel's; after an error nothing is left behind.
func (e *Engine) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	var info port.TapInfo
	err := e.keeper.add(index, func() (vectorPort, error) {
		t, err := port.OpenTap(c)
		if err != nil {
			return nil, err
		}
		info = t.Info()
		return t, nil
	})
	return info, err
}

// ClosePort removes the interface's port, its memif, or its share of a tunnels' socket from the machine, after what waits there
// has been taken in. It returns when no worker touches it any more, which needs Run to run or to have ended; ErrNoPort where
// there is none.
func (e *Engine) ClosePort(index uint32) error {
	e.drain(index)
	if served, err := e.memifs.close(index); served {
		return err
	}
	return e.keeper.remove(index)
}
