package packets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/memif"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

const (
	defaultCapture = 5 * time.Minute
	maxCapture     = time.Hour
	defaultRing    = 4 << 20
	minRing        = 128 << 10 // a packet of the maximum size
	maxRing        = 64 << 20
	maxSnap        = memif.DefaultMaxPacket
)

// captureLimits are the validated limits of a capture.
type captureLimits struct {
	directions vpp.Directions
	duration   time.Duration
	count      uint64 // 0: no limit
	snap       int
	ring       int
}

// directions maps the pod's view to the dataplane's.
var directions = map[string]vpp.Directions{
	"":     {FromPod: true, ToPod: true},
	"both": {FromPod: true, ToPod: true},
	"rx":   {ToPod: true},
	"tx":   {FromPod: true},
}

func limitsOf(req *operatorv1.CaptureRequest) (l captureLimits, err error) {
	d, known := directions[req.Direction]
	if !known {
		return l, status.Errorf(codes.InvalidArgument, "direction %q: must be rx, tx or both", req.Direction)
	}
	l = captureLimits{directions: d, count: req.Count, snap: maxSnap, ring: defaultRing}
	if l.duration, err = within(req.Duration, defaultCapture, maxCapture); err != nil {
		return l, err
	}
	if req.SnapLength > 0 {
		l.snap = int(min(req.SnapLength, maxSnap))
	}
	if req.Ring != 0 {
		if req.Ring < minRing || req.Ring > maxRing {
			return l, status.Errorf(codes.InvalidArgument, "ring of %d bytes: must be within %d and %d", req.Ring,
				minRing, maxRing)
		}
		l.ring = int(req.Ring)
	}
	return l, nil
}

// Capture streams the packets of a pod's interface.
func (s *Server) Capture(
	req *operatorv1.CaptureRequest, stream grpc.ServerStreamingServer[operatorv1.CaptureReply],
) error {
	limits, err := limitsOf(req)
	if err != nil {
		return err
	}
	if req.Interface == "" {
		return status.Error(codes.InvalidArgument, "no interface: a capture is of one interface of the pod")
	}
	found, err := s.interfacesOf(req.Namespace, req.Name, req.Interface)
	if err != nil {
		return err
	}
	release, err := s.captures.take("captures")
	if err != nil {
		return err
	}
	defer release()
	source, err := s.config.Dataplane.OpenCapture(stream.Context(), found[0].Object)
	if err != nil {
		return unavailable(err)
	}
	log := s.config.Log.With("pod", req.Namespace+"/"+req.Name, "interface", req.Interface)
	c := &capture{
		limits:   limits,
		source:   source,
		ring:     newRing(limits.ring),
		stopping: s.config.Stopping,
		log:      log,
		ended:    make(chan struct{}),
	}
	log.Info("capture started", "duration", limits.duration)
	err = c.run(stream, found[0].Object)
	log.Info("capture ended", "packets", c.sent.Load(), "lost", c.ring.losses(), "err", err)
	return err
}

// unavailable converts an error of the dataplane.
func unavailable(err error) error {
	if missing := new(vpp.MissingMessage); errors.As(err, &missing) {
		text := missing.Error()
		if missing.Plugin != "" {
			text += ": load its plugin " + missing.Plugin
		}
		return status.Error(codes.FailedPrecondition, text+"; see docs/operations.md, Packets")
	}
	if errors.Is(err, vpp.ErrNoInterface) {
		return status.Error(codes.FailedPrecondition, err.Error()+"; weftctl objects vpp.interface has its state")
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

const (
	// closeTimeout bounds the removal of a capture.
	closeTimeout = 5 * time.Second
	// checkInterval is the interval of checks whether the captured interface exists.
	checkInterval = time.Second
	// lastWords is the time that a client has to read the packets in the ring after the end of the capture.
	lastWords = 10 * time.Second
)

type captureStream = grpc.ServerStreamingServer[operatorv1.CaptureReply]

// capture is a running capture. One goroutine moves packets from the memif to the ring and never waits for the client,
// another one sends them to the client. The mirror is removed as soon as the first one ends.
type capture struct {
	limits   captureLimits
	source   *vpp.Capture
	ring     *ring
	stopping <-chan struct{}
	log      *slog.Logger
	ended    chan struct{} // closed when the mirror is removed; lost and why are set
	sent     atomic.Uint64
	pressed  bool // a whole burst waited: the dataplane may have lost packets
	lost     *uint64
	why      error
}

func (c *capture) run(stream captureStream, object string) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	client, err := memif.Dial(ctx, memif.ClientConfig{
		Socket:   c.source.Socket,
		Name:     "capture",
		Program:  "weft-agent",
		RingSize: 4096,
	},
		memif.ClientEvents{Disconnected: func(error) { cancel(errDataplane) }})
	if err != nil {
		c.remove()
		return status.Errorf(codes.FailedPrecondition, "connect to the dataplane's mirror: %v", err)
	}
	if err := c.source.Start(ctx, c.limits.directions); err != nil {
		_ = client.Close()
		c.remove()
		return unavailable(err)
	}
	go func() {
		defer close(c.ended)
		cancel(c.receive(ctx, client))
		c.why = context.Cause(ctx)
		c.settle()
		_ = client.Close()
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, cancel)
	}()
	sent := make(chan error, 1)
	go func() { sent <- c.forward(stream, object) }()
	err = c.await(ctx, sent, cancel)
	<-c.ended
	<-watched
	return err
}

// await waits until the client has all packets, or has not read them in time. Then the call ends, and with it the
// sending.
func (c *capture) await(ctx context.Context, sent <-chan error, end context.CancelCauseFunc) error {
	select {
	case err := <-sent:
		end(err)
		return err
	case <-ctx.Done():
	}
	<-c.ended
	slow := time.NewTimer(lastWords)
	defer slow.Stop()
	select {
	case err := <-sent:
		return err
	case <-slow.C:
		return status.Errorf(codes.DeadlineExceeded, "%v, and the client did not read its packets", c.why)
	}
}

// settle ends the mirror, reads its losses and removes it.
func (c *capture) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.source.Stop(ctx); err == nil && c.pressed && !errors.Is(c.why, context.Canceled) &&
		!errors.Is(c.why, errStopping) {
		<-time.After(statsAge) // until the counters of the mirror are current
	}
	if lost, err := c.source.Lost(ctx); err == nil {
		c.lost = &lost
	}
	c.remove()
}

// remove removes the objects of the capture. If that fails, the next connection to the dataplane removes them.
func (c *capture) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.source.Close(ctx); err != nil {
		c.log.Warn("capture not removed; the next connection to the dataplane removes it", "err", err)
	}
}

// statsAge is the age that the counters of weft-vswitch may have.
const statsAge = 1100 * time.Millisecond

func (c *capture) start(object string) *operatorv1.CaptureStart {
	link := "ethernet"
	if c.source.Bare {
		link = "ip"
	}
	now := time.Now()
	return &operatorv1.CaptureStart{Object: object, LinkType: link, SnapLength: uint32(c.limits.snap),
		Started: timestamppb.New(now), Deadline: timestamppb.New(now.Add(c.limits.duration))}
}

// Reasons of an end that is no error.
var (
	errCount     = errors.New("the number of packets is reached")
	errDeadline  = errors.New("the time is over")
	errStopping  = errors.New("the agent stops")
	errDataplane = errors.New("the dataplane ended the mirror")
	errGone      = errors.New("the interface was deleted")
)

// watch ends the capture at its deadline, and when the interface, the dataplane or the agent ends.
func (c *capture) watch(ctx context.Context, end context.CancelCauseFunc) {
	deadline := time.NewTimer(c.limits.duration)
	defer deadline.Stop()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.stopping:
			end(errStopping)
		case <-deadline.C:
			end(errDeadline)
		case <-tick.C:
			switch err := c.source.Check(ctx); {
			case errors.Is(err, vpp.ErrNoInterface):
				end(errGone)
			case err != nil:
				end(errDataplane)
			}
		}
	}
}

// burst is the number of packets that are read at once.
const burst = 64

// receive moves packets to the ring until ctx ends or the number of packets is reached. It never waits for the client.
func (c *capture) receive(ctx context.Context, client *memif.Client) error {
	v := make([][]byte, burst)
	for i := range v {
		v[i] = make([]byte, maxSnap)
	}
	taken := uint64(0)
	for {
		n, err := client.ReadBurst(ctx, v)
		if err != nil {
			return err
		}
		now := timestamppb.Now()
		if n == burst {
			c.pressed = true
		}
		for _, p := range v[:n] {
			data := p[:min(len(p), c.limits.snap)]
			if !c.ring.room(len(data)) {
				continue
			}
			c.ring.put(&operatorv1.CapturedPacket{
				Time:   now,
				Length: uint32(len(p)),
				Data:   append([]byte(nil), data...),
			})
			if taken++; c.limits.count != 0 && taken == c.limits.count {
				return errCount
			}
		}
	}
}

// forward sends the start, packets from the ring, and the end.
func (c *capture) forward(stream captureStream, object string) error {
	if err := stream.Send(&operatorv1.CaptureReply{
		Part: &operatorv1.CaptureReply_Start{Start: c.start(object)},
	}); err != nil {
		return err
	}
	for running := true; running; {
		select {
		case <-c.ring.ready:
		case <-c.ended:
			running = false
		}
		for packets := c.ring.take(); len(packets) > 0; packets = c.ring.take() {
			part := &operatorv1.CaptureReply_Packets{
				Packets: &operatorv1.CapturedPackets{Packets: packets, Lost: c.ring.losses()},
			}
			if err := stream.Send(&operatorv1.CaptureReply{Part: part}); err != nil {
				return err
			}
			c.sent.Add(uint64(len(packets)))
		}
	}
	end := &operatorv1.CaptureEnd{Reason: fmt.Sprint(c.why), Packets: c.sent.Load(), Lost: c.ring.losses()}
	if c.lost != nil {
		end.LostInDataplane = *c.lost
		end.LostInDataplaneKnown = true
	}
	return stream.Send(&operatorv1.CaptureReply{Part: &operatorv1.CaptureReply_End{End: end}})
}
