package forward

import (
	"errors"

	"github.com/weftnet/weft/vswitch/port"
)

// OpenTap makes a tap and lets interface index receive and send through it. The interface may be set before or after;
// until SetInterface and Publish its frames are dropped. Errors: port.ErrNameInUse, port.ErrNamespaceGone, ErrPortExists,
// and the kernel's; after an error nothing is left behind.
func (e *Engine) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	return port.TapInfo{}, errors.ErrUnsupported
}

// ClosePort removes the interface's port from the machine. It returns when no worker touches it any more; ErrNoPort where
// there is none.
func (e *Engine) ClosePort(index uint32) error { return ErrNoPort }
