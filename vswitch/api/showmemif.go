package api

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/weftnet/weft/vswitch/model"
)

// showMemifs shows sockets and memifs as VPP's "show memif" does, as far as there is something to show. No secrets.
func (s *Server) showMemifs() string {
	var b strings.Builder
	b.WriteString("sockets\n")
	b.WriteString(page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "  id\tlistener\tfilename")
		for _, f := range s.model.MemifSockets() {
			fmt.Fprintf(w, "  %d\t%s\t%s\n", f.ID, yesNo(f.Listening), f.Path)
		}
	}))
	for _, m := range s.model.Memifs() {
		showMemif(&b, m)
	}
	return b.String()
}

func showMemif(b *strings.Builder, m model.MemifDetails) {
	mode, flags := "ethernet", ""
	if m.Mode == model.MemifIP {
		mode = "ip"
	}
	if m.AdminUp {
		flags += " admin-up"
	}
	if m.Peer != nil {
		flags += " connected"
	}
	fmt.Fprintf(b, "\ninterface %s\n", m.Name)
	if m.Peer != nil {
		fmt.Fprintf(b, "  remote-name %q\n  remote-interface %q\n", m.Peer.Name, m.Peer.Interface)
	}
	fmt.Fprintf(b, "  socket-id %d id %d mode %s secret %s\n  flags%s\n", m.Socket, m.ID, mode, yesNo(m.Secret != ""), flags)
	if p := m.Peer; p != nil {
		fmt.Fprintf(b, "  slave-to-master rings %d, master-to-slave rings %d, ring-size %d, regions %d\n",
			p.RxQueues, p.TxQueues, p.RingSize, p.Regions)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
