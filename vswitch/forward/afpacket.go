package forward

import "github.com/weftnet/weft/vswitch/port"

// OpenAFPacket attaches interface index to a link of the machine, which stays when the port is closed. Where the link goes
// down or away the port breaks, and is attached again when the link is there and up; c.SetUp is for the first time only.
// Errors: port.ErrNoLink, port.ErrLinkDown, ErrPortExists, and the kernel's; after an error nothing is left behind.
func (e *Engine) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	var info port.AFPacketInfo
	err := e.keeper.add(index, func() (vectorPort, error) {
		p, err := port.OpenAFPacket(c)
		if err != nil {
			return nil, err
		}
		info, c.SetUp = p.Info(), false
		return p, nil
	})
	return info, err
}
