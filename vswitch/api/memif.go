package api

import (
	"strings"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

// maxMemifSecret is what VPP keeps of a secret: its field's last byte is a NUL.
const maxMemifSecret = 23

func (s *Server) addMemifs() {
	handle(s, s.setMemifSocket)
	s.table.addList(&binapi.MemifSocketFilenameAddDelV2{}, list{count: 5, item: 1})
	handleDump(s, func(*binapi.MemifSocketFilenameDump) ([]binapi.MemifSocketFilenameDetails, error) {
		var list []binapi.MemifSocketFilenameDetails
		for _, f := range s.model.MemifSockets() {
			list = append(list, binapi.MemifSocketFilenameDetails{SocketID: f.ID, SocketFilename: f.Path})
		}
		return list, nil
	})
	handle(s, s.addMemif)
	handle(s, func(_ *client, r *binapi.MemifDelete) (*binapi.MemifDeleteReply, error) {
		return nil, s.model.DeleteMemif(uint32(r.SwIfIndex))
	})
	handleDump(s, s.dumpMemifs)
}

// setMemifSocket answers with the number that was asked for where it refuses, as VPP does.
func (s *Server) setMemifSocket(_ *client, r *binapi.MemifSocketFilenameAddDelV2) (*binapi.MemifSocketFilenameAddDelV2Reply, error) {
	if !r.IsAdd {
		return &binapi.MemifSocketFilenameAddDelV2Reply{SocketID: r.SocketID}, s.model.DeleteMemifSocket(r.SocketID)
	}
	id, err := s.model.AddMemifSocket(r.SocketID, r.SocketFilename)
	return &binapi.MemifSocketFilenameAddDelV2Reply{SocketID: id}, err
}

// addMemif ignores numbers of queues, sizes of buffers, zero copy and DMA, as VPP does for a server or where it has none.
func (s *Server) addMemif(_ *client, r *binapi.MemifCreateV2) (*binapi.MemifCreateV2Reply, error) {
	secret, _, _ := strings.Cut(r.Secret, "\x00")
	c := model.Memif{Socket: r.SocketID, ID: r.ID, Client: r.Role != binapi.MEMIF_ROLE_API_MASTER, Mode: uint32(r.Mode),
		Secret: memif.Secret(secret[:min(len(secret), maxMemifSecret)]), RingSize: r.RingSize,
		RxQueues: int(r.RxQueues), TxQueues: int(r.TxQueues)}
	if mac := frame.MAC(r.HwAddr); !mac.IsZero() {
		c.MAC = &mac
	}
	index, err := s.model.AddMemif(c)
	return &binapi.MemifCreateV2Reply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
}

// dumpMemifs tells the sizes of rings and buffers that VPP tells of a server, connected or not.
func (s *Server) dumpMemifs(*binapi.MemifDump) ([]binapi.MemifDetails, error) {
	var list []binapi.MemifDetails
	for _, m := range s.model.Memifs() {
		list = append(list, binapi.MemifDetails{
			SwIfIndex: interface_types.InterfaceIndex(m.Index), IfName: m.Name, HwAddr: ethernet_types.MacAddress(m.Interface.MAC),
			ID: m.ID, SocketID: m.Socket, Role: binapi.MEMIF_ROLE_API_MASTER, Mode: binapi.MemifMode(m.Mode),
			RingSize: 1, Flags: statusFlags(m.AdminUp, m.LinkUp),
		})
	}
	return list, nil
}
