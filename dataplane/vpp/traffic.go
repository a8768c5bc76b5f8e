package vpp

import (
	"context"
	"strconv"
	"strings"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"
)

// Traffic is what passed through an interface since it was made, as the dataplane sees it.
type Traffic struct {
	RxPackets, RxBytes uint64 // came from the interface
	TxPackets, TxBytes uint64 // went to it
	RxDrops            uint64 // came from it and were dropped, or were lost on the way in
	TxDrops            uint64 // were to go to it and could not

	LinkUp bool // of a memif: its client is connected
}

// Traffic reads the counters of our interfaces, by name. The binary API has no message for them but the one that carries
// commands for people, so it is their table that is read.
func (c *Client) Traffic(ctx context.Context) (map[string]Traffic, error) {
	reply := &vlib.CliInbandReply{}
	show := ask("cli_inband show interface", &vlib.CliInband{Cmd: "show interface"}, reply)
	if err := c.exchangeAll(ctx, []*request{show}); err != nil {
		return nil, err
	}
	there, err := c.ports(ctx) // afterwards: what has been deleted by then has no name, and what is new no counters
	if err != nil {
		return nil, err
	}
	counted := readTraffic(reply.Reply)
	traffic := make(map[string]Traffic, len(there.byName))
	for name, d := range there.byName {
		i := Index(d.SwIfIndex)
		t := counted[row{d.InterfaceName, i}]
		if m := there.memifs[i]; m != nil {
			t.LinkUp = m.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0
		}
		traffic[name] = t
	}
	return traffic, nil
}

// row names an interface in the table.
type row struct {
	name  string // the dataplane's
	index Index
}

// readTraffic reads the table of "show interface". An interface has a line with name, index, state and MTUs; its counters
// stand at the end of that line and on lines of their own, which begin with a blank. Those that are 0 are left out.
func readTraffic(table string) map[row]Traffic {
	counted := make(map[row]Traffic)
	var at row
	known := false
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if line[0] != ' ' && line[0] != '\t' {
			at, known = rowOf(fields)
			fields = fields[min(4, len(fields)):]
		}
		if !known {
			continue
		}
		t := counted[at]
		t.add(fields)
		counted[at] = t
	}
	return counted
}

// rowOf reads the beginning of an interface's line.
func rowOf(fields []string) (r row, ok bool) {
	if len(fields) < 4 {
		return r, false
	}
	index, err := strconv.ParseUint(fields[1], 10, 32)
	return row{fields[0], Index(index)}, err == nil
}

// add takes one counter in: the words of its name, then its value.
func (t *Traffic) add(fields []string) {
	if len(fields) < 2 {
		return
	}
	last := len(fields) - 1
	count, err := strconv.ParseUint(fields[last], 10, 64)
	if err != nil {
		return
	}
	switch strings.Join(fields[:last], " ") {
	case "rx packets":
		t.RxPackets += count
	case "rx bytes":
		t.RxBytes += count
	case "tx packets":
		t.TxPackets += count
	case "tx bytes":
		t.TxBytes += count
	case "drops", "rx-miss", "rx-no-buf":
		t.RxDrops += count
	case "tx-error":
		t.TxDrops += count
	}
}
