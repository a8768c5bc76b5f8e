package port

import (
	"errors"

	"github.com/weftnet/weft/vswitch/frame"
)

// Errors that OpenAFPacket's caller decides on.
var (
	ErrNoLink   = errors.New("no such Ethernet link")
	ErrLinkDown = errors.New("the link is down")
)

// AFPacketConfig says which link to attach to.
type AFPacketConfig struct {
	Name        string // of a link in the process's own network namespace
	Offload     bool   // frames may be handed to the kernel unfinished: it cuts and sums them, or the link does
	QdiscBypass bool   // sent frames skip the link's queueing discipline
	SetUp       bool   // set the link up if it is down; else that is ErrLinkDown
}

// AFPacketInfo describes the link as it was when it was opened.
type AFPacketInfo struct {
	Ifindex int
	MAC     frame.MAC // of the link itself
	MTU     int
}
