package packets

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

const (
	defaultTrace  = 10 * time.Second
	maxTrace      = 5 * time.Minute
	defaultTraced = 10
	maxTraced     = 1000
	// traceInterval is the interval of reads. The dataplane keeps the packets of that time.
	traceInterval = 200 * time.Millisecond
)

// Trace streams the paths of packets that a pod sends.
func (s *Server) Trace(req *operatorv1.TraceRequest, stream grpc.ServerStreamingServer[operatorv1.TraceReply]) error {
	duration, err := within(req.Duration, defaultTrace, maxTrace)
	if err != nil {
		return err
	}
	count := int(req.Count)
	if count == 0 {
		count = defaultTraced
	}
	if count > maxTraced {
		return status.Errorf(codes.InvalidArgument, "count %d: at most %d packets are traced", count, maxTraced)
	}
	found, err := s.interfacesOf(req.Namespace, req.Name, req.Interface)
	if err != nil {
		return err
	}
	release, err := s.traces.take("traces")
	if err != nil {
		return err
	}
	defer release()
	t := &trace{left: count, names: map[string]string{}}
	var objects []string
	for _, i := range found {
		objects = append(objects, i.Object)
		t.names[i.Object] = i.Name
	}
	source, err := s.config.Dataplane.OpenTrace(stream.Context(), objects)
	if err != nil {
		return unavailable(err)
	}
	defer s.endTrace(source)
	t.source = source
	t.replace = newInterfaceNames(s.readable(source.Names))
	ctx, cancel := context.WithTimeoutCause(stream.Context(), duration, errDeadline)
	defer cancel()
	return awaitReader(ctx, s.config.Stopping, func() error { return t.run(ctx, stream, s.config.Stopping) })
}

// awaitReader runs send, which sends to a client until ctx ends or stopping is closed, and returns its error. A client
// that has not read everything lastWords later gets an error: the end of the call ends its sending, and the next client
// can trace.
func awaitReader(ctx context.Context, stopping <-chan struct{}, send func() error) error {
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
	case <-stopping:
	}
	slow := time.NewTimer(lastWords)
	defer slow.Stop()
	select {
	case err := <-sent:
		return err
	case <-slow.C:
		return status.Error(codes.DeadlineExceeded, "the client did not read its packets")
	}
}

// readable replaces the names of objects of pods by NAMESPACE/POD:INTERFACE.
func (s *Server) readable(objects map[string]string) map[string]string {
	pods := map[string]string{}
	for _, a := range s.config.Attachments() {
		for _, i := range a.Interfaces {
			pods[i.Object] = pod.Owner{Pod: a.Pod, ContainerID: a.Key.ContainerID, Interface: i.Name}.String()
		}
	}
	names := map[string]string{}
	for name, object := range objects {
		if names[name] = object; pods[object] != "" {
			names[name] = pods[object]
		}
	}
	return names
}

func (s *Server) endTrace(source *vpp.Trace) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := source.Close(ctx); err != nil {
		s.config.Log.Warn("trace not cleared in the dataplane", "err", err)
	}
}

// trace is a running trace.
type trace struct {
	source  *vpp.Trace
	names   map[string]string // names in the pod by object
	replace interfaceNames
	sent    int
	left    int
}

// run sends paths until ctx ends or enough packets are sent.
func (t *trace) run(
	ctx context.Context, stream grpc.ServerStreamingServer[operatorv1.TraceReply], stopping <-chan struct{},
) error {
	tick := time.NewTicker(traceInterval)
	defer tick.Stop()
	for {
		var why error
		select {
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-stopping:
			why = errStopping
		case <-tick.C:
		}
		if err := stream.Context().Err(); err != nil {
			return err
		}
		if err := t.read(stream); err != nil {
			return err
		}
		if t.left == 0 {
			why = errCount
		}
		if why != nil {
			end := &operatorv1.TraceEnd{Reason: why.Error(), Packets: uint32(t.sent), Others: t.source.Others()}
			return stream.Send(&operatorv1.TraceReply{Part: &operatorv1.TraceReply_End{End: end}})
		}
	}
}

// read sends the new paths.
func (t *trace) read(stream grpc.ServerStreamingServer[operatorv1.TraceReply]) error {
	paths, err := t.source.Read(stream.Context())
	if err != nil {
		return unavailable(errors.Join(errors.New("the dataplane ended the trace"), err))
	}
	for _, p := range paths[:min(len(paths), t.left)] {
		packet := t.packet(p)
		if err := stream.Send(&operatorv1.TraceReply{Part: &operatorv1.TraceReply_Packet{Packet: packet}}); err != nil {
			return err
		}
		t.sent++
		t.left--
	}
	return nil
}

// packet decodes a path, and replaces the names of interfaces.
func (t *trace) packet(p vpp.TracedPath) *operatorv1.TracedPacket {
	steps := parsePath(p.Text)
	packet := &operatorv1.TracedPacket{Interface: t.names[p.Source], Summary: summarise(steps), Steps: steps}
	for _, s := range steps {
		s.Node = t.replace.replace(s.Node)
		s.Text = t.replace.replace(s.Text)
	}
	packet.Outcome, packet.Dropped = outcome(steps)
	return packet
}
