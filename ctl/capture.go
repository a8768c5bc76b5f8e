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
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func captureCommand(c *client) *cobra.Command {
	req := &operatorv1.CaptureRequest{}
	var file, ring string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "capture NAMESPACE/POD INTERFACE -w FILE",
		Short: "Captures the packets of a pod's interface",
		Long: `Captures the packets of a pod's interface as a file in pcapng format, with nanosecond timestamps of the agent. Directions are
from the view of the pod. The capture ends at --count, after --for (at most 1h), and when weftctl is interrupted.`,
		Example: `  weftctl capture shop/cart eth0 -w cart.pcap --for 30s
  weftctl capture shop/cart net1 -w - | tcpdump -n -r -`,
		Args:              usage(cobra.ExactArgs(2)),
		ValidArgsFunction: completeInterfaces(c),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Namespace, req.Name, err = podArgument(args[0]); err != nil {
				return err
			}
			if file == "" {
				return usageError{
					errors.New(
						"-w FILE is missing; \"-w - | tcpdump -n -r -\" prints the packets, and so does weftctl trace"),
				}
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
	flags.StringVarP(&file, "write", "w", "", "file to write, which must not exist; - is the standard output")
	flags.StringVar(&req.Direction, "direction", "both", "packets that the pod receives (rx), sends (tx), or both")
	flags.Uint64Var(&req.Count, "count", 0, "end after this number of packets; 0 is no limit")
	flags.DurationVar(&duration, "for", 5*time.Minute, "end after this time, at most 1h")
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

// capture writes a capture to a file. It creates the file when the capture has started.
func (c *client) capture(cmd *cobra.Command, req *operatorv1.CaptureRequest, file string) error {
	agent := c.agent
	agent.timeout = 0 // the capture has a limit of its own
	out := &captureFile{stdout: c.out, name: file}
	err := agent.dial(cmd.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
		stream, err := operatorv1.NewPacketsClient(conn).Capture(ctx, req)
		if err != nil {
			return err
		}
		return out.receive(stream, req.Namespace+"/"+req.Name+" "+req.Interface)
	})
	interrupted := cmd.Context().Err() != nil
	if interrupted && out.writer != nil {
		err = nil
		out.end.Reason = "interrupted"
	}
	if err = errors.Join(err, out.close()); err != nil {
		return err
	}
	if file == "-" {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), out.summary())
		return err
	}
	return c.show(out.end, func() { c.printf("%s\n", out.summary()) })
}

// captureFile is the file of a capture.
type captureFile struct {
	stdout io.Writer
	name   string
	file   *newFile // nil: the standard output
	writer *pcapgo.NgWriter
	start  *operatorv1.CaptureStart
	end    *operatorv1.CaptureEnd // or what is known so far
}

// receive writes a stream until its end. Packets are in the file as soon as they have arrived.
func (f *captureFile) receive(stream grpc.ServerStreamingClient[operatorv1.CaptureReply], source string) error {
	f.end = &operatorv1.CaptureEnd{}
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
			err = f.open(part.Start, source)
		case *operatorv1.CaptureReply_Packets:
			err = f.write(part.Packets)
		case *operatorv1.CaptureReply_End:
			f.end = part.End
		}
		if err != nil {
			return err
		}
	}
}

func (f *captureFile) open(start *operatorv1.CaptureStart, source string) (err error) {
	out := f.stdout
	if f.name != "-" {
		if f.file, err = createFile(f.name, true); err != nil {
			return err
		}
		out = f.file
	}
	link := layers.LinkTypeEthernet
	if start.LinkType == "ip" {
		link = layers.LinkTypeRaw
	}
	f.start = start
	f.writer, err = pcapgo.NewNgWriterInterface(out, pcapgo.NgInterface{
		Name:                source,
		Description:         "dataplane interface " + start.Object,
		LinkType:            link,
		SnapLength:          start.SnapLength,
		TimestampResolution: 9,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "weftctl capture"}})
	if err != nil {
		return err
	}
	return f.writer.Flush()
}

func (f *captureFile) write(batch *operatorv1.CapturedPackets) error {
	if f.writer == nil {
		return errors.New("the agent sent packets before the start of the capture")
	}
	for _, p := range batch.Packets {
		info := gopacket.CaptureInfo{
			Timestamp:     p.Time.AsTime(),
			CaptureLength: len(p.Data),
			Length:        max(int(p.Length), len(p.Data)),
		}
		if err := f.writer.WritePacket(info, p.Data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		f.end.Packets++
	}
	f.end.Lost = batch.Lost
	if err := f.writer.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	return nil
}

// close adds the number of lost packets to the file.
func (f *captureFile) close() (err error) {
	if f.writer != nil && f.end.Reason != "" {
		lost := f.end.Lost + f.end.LostInDataplane
		err = f.writer.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
			LastUpdate: time.Now(),
			StartTime:  f.start.Started.AsTime(),
			EndTime:    time.Now(), PacketsReceived: f.end.Packets + lost, PacketsDropped: lost,
		})
		err = errors.Join(err, f.writer.Flush())
	}
	if f.file != nil {
		err = errors.Join(err, f.file.finish(true))
	}
	return err
}

// summary describes the end of a capture.
func (f *captureFile) summary() string {
	text := fmt.Sprintf("%s captured, %d lost", counted(int(f.end.Packets), "packet"), f.end.Lost+f.end.LostInDataplane)
	if f.end.Lost > 0 {
		text += fmt.Sprintf(" (%d because the file was slow: use a larger --ring, a smaller --snaplen)", f.end.Lost)
	}
	return text + ": " + f.end.Reason
}
