// Package shown converts attachments and phases of objects into the messages of the API for operators.
package shown

import (
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/wire"
)

// PhaseUnknown replaces InSync for objects of a dataplane that is not connected: it may have lost them.
const PhaseUnknown = "Unknown"

// Phase returns the phase of an object of a kind. down: the dataplane is not connected.
func Phase(kind kvscheduler.Kind, status kvscheduler.Status, down bool) string {
	if down && status.Phase == kvscheduler.InSync && wire.IsDataplane(string(kind)) {
		return PhaseUnknown
	}
	return status.Phase.String()
}

// Interfaces describes the interfaces of an attachment.
func Interfaces(a *pod.Attachment) (rows []*operatorv1.InterfaceInfo) {
	for _, i := range a.Interfaces {
		row := &operatorv1.InterfaceInfo{
			Name:    i.Name,
			Type:    i.Type,
			Network: i.Network,
			Object:  i.Object,
			Mac:     i.MAC.String(),
			Mtu:     uint32(i.MTU),
			Limits:  i.Limits.String(),
		}
		for _, p := range i.Addresses {
			row.Addresses = append(row.Addresses, p.String())
		}
		rows = append(rows, row)
	}
	return rows
}
