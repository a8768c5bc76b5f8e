package api

import (
	"go.fd.io/govpp/binapi/ip"

	"github.com/weftnet/weft/vswitch/forward"
)

func (s *Server) addTables() {
	handle(s, func(_ *client, r *ip.IPTableAddDelV2) (*ip.IPTableAddDelV2Reply, error) {
		if r.IsAdd {
			s.model.AddTable(tableKey(r.Table), r.Table.Name)
		} else {
			s.model.DeleteTable(tableKey(r.Table))
		}
		return nil, nil
	})
	handleDump(s, func(*ip.IPTableDump) ([]ip.IPTableDetails, error) {
		var list []ip.IPTableDetails
		for _, t := range s.model.Tables() {
			list = append(list, ip.IPTableDetails{Table: ip.IPTable{TableID: t.ID, IsIP6: t.Family == forward.IP6, Name: t.Name}})
		}
		return list, nil
	})
}

func tableKey(t ip.IPTable) forward.TableKey {
	return forward.TableKey{Family: familyOf(t.IsIP6), ID: t.TableID}
}
