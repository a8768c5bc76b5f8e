package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
	"go.fd.io/govpp"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/span"
)

// captureCommand:
//
//	capture show FILE     print the packets of a pcapng file, one a line; gopacket decodes them
//	capture await FILE    wait until the file has a header: the capture runs
//	capture objects N M   wait until the dataplane has N mirrors and M sockets of captures
func captureCommand(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case !neg && len(args) == 2 && args[0] == "show":
		lines, err := packetsIn(ts.MkAbs(args[1]))
		ts.Check(err)
		for _, line := range lines {
			_, _ = fmt.Fprintln(ts.Stdout(), line)
		}
	case !neg && len(args) == 2 && args[0] == "await":
		ts.Check(eventually(timeout, func() error {
			info, err := os.Stat(ts.MkAbs(args[1]))
			if err == nil && info.Size() == 0 {
				err = errors.New("the file is empty")
			}
			return err
		}))
	case !neg && len(args) == 3 && args[0] == "objects":
		want := args[1] + " mirrors, " + args[2] + " sockets"
		ts.Check(eventually(timeout, func() error {
			got, err := on(ts).captures()
			if err == nil && got != want {
				err = fmt.Errorf("the dataplane has %s, want %s", got, want)
			}
			return err
		}))
	default:
		usage(ts, "capture show|await FILE, capture objects N M")
	}
}

// captures counts the mirrors of the dataplane, and the memif sockets of captures.
func (s *stage) captures() (string, error) {
	conn, err := govpp.Connect(s.node.DataplaneSocket())
	if err != nil {
		return "", err
	}
	defer conn.Disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	mirrors, err := dump(span.NewServiceClient(conn).SwInterfaceSpanDump(ctx, &span.SwInterfaceSpanDump{}))
	if err != nil {
		return "", err
	}
	all, err := dump(memif.NewServiceClient(conn).MemifSocketFilenameDump(ctx, &memif.MemifSocketFilenameDump{}))
	sockets := 0
	for _, d := range all {
		if strings.Contains(d.SocketFilename, "/captures/") {
			sockets++
		}
	}
	return fmt.Sprintf("%d mirrors, %d sockets", len(mirrors), sockets), err
}

// packetsIn decodes the packets of a file: ICMP messages with sequence numbers, others by their layers.
func packetsIn(file string) (lines []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return nil, err
	}
	for {
		data, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, describePacket(gopacket.NewPacket(data, r.LinkType(), gopacket.Default)))
	}
}

func describePacket(p gopacket.Packet) string {
	n := p.NetworkLayer()
	if icmp, is := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); is {
		return fmt.Sprintf("icmp %s > %s %s seq %d", n.NetworkFlow().Src(), n.NetworkFlow().Dst(), icmp.TypeCode,
			icmp.Seq)
	}
	var names []string
	for _, l := range p.Layers() {
		names = append(names, l.LayerType().String())
	}
	return strings.Join(names, " ")
}
