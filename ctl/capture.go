package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// maxCaptureTime is the longest time that the agent accepts for a capture.
const maxCaptureTime = time.Hour

func captureCommand(c *client) *cobra.Command {
	req := &operatorv1.CaptureRequest{}
	var file, ring string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "capture NAMESPACE/POD INTERFACE [-w FILE]",
		Short: "Captures the packets of a pod's interface",
		Long: `Captures the packets of a pod's interface: as a line for each packet, or with -w as a file in pcapng format, with
nanosecond timestamps of the agent. Directions are from the view of the pod. The capture ends at --count, after --for
(at most 1h), and when weftctl is interrupted.`,
		Example: `  weftctl capture shop/cart eth0 --count 10
  weftctl capture shop/cart eth0 -w cart.pcap --for 30s
  weftctl capture shop/cart net1 -w - | tcpdump -n -r -`,
		Args:              usage(cobra.ExactArgs(2)),
		ValidArgsFunction: completeInterfaces(c),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Namespace, req.Name, err = podArgument(args[0]); err != nil {
				return err
			}
			if file == "" && !cmd.Flags().Changed("for") {
				duration = maxCaptureTime
			}
			if file == "-" && isTerminal(c.out) {
				return usageError{
					errors.New(
						"-w -: the standard output is a terminal: give a file, or pipe the packets to \"tcpdump -n -r -\""),
				}
			}
			if req.Ring, err = bytesOf("--ring", ring); err != nil {
				return err
			}
			req.Interface = args[1]
			req.Duration = durationpb.New(duration)
			return c.capture(cmd, req, file)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "write", "w", "", "file to write, which must not exist; - is the standard output; default: print a line for each packet")
	flags.StringVar(&req.Direction, "direction", "both", "packets that the pod receives (rx), sends (tx), or both")
	flags.Uint64Var(&req.Count, "count", 0, "end after this number of packets; 0 is no limit")
	flags.DurationVar(&duration, "for", 5*time.Minute, "end after this time, at most 1h, the default without a file")
	flags.Uint32Var(&req.SnapLength, "snaplen", 0, "bytes to keep of a packet; 0 is all")
	flags.StringVar(&ring, "ring", "4Mi",
		"packets that wait in the agent while the file is slow, in bytes, 128Ki to 64Mi")
	return cmd
}

// podArgument splits NAMESPACE/POD.
func podArgument(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usageError{fmt.Errorf("pod %q: must be NAMESPACE/POD, or -n NAMESPACE POD", s)}
	}
	return namespace, name, nil
}

// bytesOf parses a number of bytes, as Kubernetes writes them.
func bytesOf(flag, s string) (uint64, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() <= 0 {
		return 0, usageError{fmt.Errorf("%s %q: must be a number of bytes, such as 4Mi", flag, s)}
	}
	return uint64(q.Value()), nil
}

// capture writes a capture to a file, or prints its packets. It creates the file when the capture has started.
func (c *client) capture(cmd *cobra.Command, req *operatorv1.CaptureRequest, file string) error {
	agent := c.agent
	agent.timeout = 0 // the capture has a limit of its own
	run := &capture{out: &captureText{printer: &c.printer}}
	if file != "" {
		run.out = &captureFile{stdout: c.out, name: file, source: req.Namespace + "/" + req.Name + " " + req.Interface}
	}
	err := agent.dial(cmd.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
		stream, err := operatorv1.NewPacketsClient(conn).Capture(ctx, req)
		if err != nil {
			return err
		}
		return run.receive(stream)
	})
	interrupted := cmd.Context().Err() != nil
	if interrupted && run.isOpen {
		err = nil
		run.end.Reason = "interrupted"
	}
	if err = errors.Join(err, run.out.close(&run.end)); err != nil {
		return err
	}
	if file == "" || file == "-" {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), summary(&run.end))
		return err
	}
	return c.show(&run.end, func() { c.printf("%s\n", summary(&run.end)) })
}

// captureOutput receives the packets of a capture. close is called also without open, and also if the end has no
// reason.
type captureOutput interface {
	open(start *operatorv1.CaptureStart) error
	write(packets []*operatorv1.CapturedPacket) error
	close(end *operatorv1.CaptureEnd) error
}

// capture is a capture that is being received.
type capture struct {
	out    captureOutput
	isOpen bool
	end    operatorv1.CaptureEnd // or the part that is known so far
}

// receive passes a stream on until its end. Packets are in the output as soon as they have arrived.
func (c *capture) receive(stream grpc.ServerStreamingClient[operatorv1.CaptureReply]) error {
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch part := reply.Part.(type) {
		case *operatorv1.CaptureReply_Start:
			err = c.out.open(part.Start)
			c.isOpen = err == nil
		case *operatorv1.CaptureReply_Packets:
			err = c.write(part.Packets)
		case *operatorv1.CaptureReply_End:
			proto.Reset(&c.end)
			proto.Merge(&c.end, part.End)
		}
		if err != nil {
			return err
		}
	}
}

func (c *capture) write(batch *operatorv1.CapturedPackets) error {
	if !c.isOpen {
		return errors.New("the agent sent packets before the start of the capture")
	}
	if err := c.out.write(batch.Packets); err != nil {
		return err
	}
	c.end.Packets += uint64(len(batch.Packets))
	c.end.Lost = batch.Lost
	return nil
}

// captureText prints a line, or a document, for each packet.
type captureText struct {
	*printer
	link layers.LinkType
}

// capturedPacket is a line of capture.
type capturedPacket struct {
	Length uint32 `json:"length"`
	Packet string `json:"packet"`
	Time   string `json:"time"`
}

func (t *captureText) open(start *operatorv1.CaptureStart) error {
	t.link = linkOf(start)
	return nil
}

func (t *captureText) write(packets []*operatorv1.CapturedPacket) error {
	for _, p := range packets {
		line := packetLine(p.Data, t.link)
		at := p.Time.AsTime()
		if t.format == "table" {
			t.printf("%s  %s, %s\n", at.In(t.now().Location()).Format("15:04:05.000000"), line,
				counted(int(p.Length), "byte"))
			continue
		}
		packet := capturedPacket{Length: p.Length, Packet: line, Time: at.Format(time.RFC3339Nano)}
		if err := t.streamed(packet); err != nil {
			return err
		}
	}
	return nil
}

func (*captureText) close(*operatorv1.CaptureEnd) error { return nil }

// linkOf returns the type of the link of a capture: of packets with an Ethernet header, or of IP packets.
func linkOf(start *operatorv1.CaptureStart) layers.LinkType {
	if start.LinkType == "ip" {
		return layers.LinkTypeRaw
	}
	return layers.LinkTypeEthernet
}

// captureFile is the file of a capture.
type captureFile struct {
	stdout io.Writer
	name   string
	source string   // pod and interface
	file   *newFile // nil: the standard output
	writer *pcapgo.NgWriter
	start  *operatorv1.CaptureStart
}

func (f *captureFile) open(start *operatorv1.CaptureStart) (err error) {
	out := f.stdout
	if f.name != "-" {
		if f.file, err = createFile(f.name, true); err != nil {
			return err
		}
		out = f.file
	}
	f.start = start
	f.writer, err = pcapgo.NewNgWriterInterface(out, pcapgo.NgInterface{
		Name:                f.source,
		Description:         "dataplane interface " + start.Object,
		LinkType:            linkOf(start),
		SnapLength:          start.SnapLength,
		TimestampResolution: 9,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "weftctl capture"}})
	if err != nil {
		return err
	}
	return f.writer.Flush()
}

func (f *captureFile) write(packets []*operatorv1.CapturedPacket) error {
	for _, p := range packets {
		info := gopacket.CaptureInfo{
			Timestamp:     p.Time.AsTime(),
			CaptureLength: len(p.Data),
			Length:        max(int(p.Length), len(p.Data)),
		}
		if err := f.writer.WritePacket(info, p.Data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := f.writer.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	return nil
}

// close adds the number of lost packets to the file.
func (f *captureFile) close(end *operatorv1.CaptureEnd) (err error) {
	if f.writer != nil && end.Reason != "" {
		lost := end.Lost + end.LostInDataplane
		err = f.writer.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
			LastUpdate: time.Now(),
			StartTime:  f.start.Started.AsTime(),
			EndTime:    time.Now(), PacketsReceived: end.Packets + lost, PacketsDropped: lost,
		})
		err = errors.Join(err, f.writer.Flush())
	}
	if f.file != nil {
		err = errors.Join(err, f.file.finish(true))
	}
	return err
}

// summary describes the end of a capture.
func summary(end *operatorv1.CaptureEnd) string {
	text := fmt.Sprintf("%s captured, %d lost", counted(int(end.Packets), "packet"), end.Lost+end.LostInDataplane)
	if end.Lost > 0 {
		text += fmt.Sprintf(" (%d because the output was slow: use a larger --ring, a smaller --snaplen)", end.Lost)
	}
	return text + ": " + end.Reason
}
