// Package packets implements the gRPC service Packets: captures of pods' interfaces, and traces of packets through the
// dataplane.
package packets

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Config has the components that a Server uses.
type Config struct {
	Attachments func() []pod.Attachment
	Dataplane   *vpp.Client
	Log         *slog.Logger
	Stopping    <-chan struct{} // closed when the agent stops
}

// Server implements Packets.
type Server struct {
	operatorv1.UnimplementedPacketsServer

	config   Config
	captures places
	traces   places
}

const (
	// maxCaptures limits the captures at a time: each copies the packets of an interface a second time.
	maxCaptures = 4
	// maxTraces is one: the dataplane has one buffer of traces.
	maxTraces = 1
)

// New returns a server for operatorv1.RegisterPacketsServer.
func New(c Config) *Server {
	return &Server{config: c, captures: make(places, maxCaptures), traces: make(places, maxTraces)}
}

// places are taken by calls of which only a few may run.
type places chan struct{}

// take returns a function that returns the place, or an error if all are taken.
func (p places) take(what string) (release func(), err error) {
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted,
			"%d of %d %s run on this node: end one, or try again when one has ended", cap(p), cap(p), what)
	}
}

// interfacesOf returns the dataplane's interfaces of a pod: one by its name in the pod, or all if the name is empty. Of
// several sandboxes of a pod, the newest counts.
func (s *Server) interfacesOf(namespace, name, iface string) ([]pod.Interface, error) {
	var of []pod.Attachment
	for _, a := range s.config.Attachments() {
		if a.Pod.Namespace == namespace && a.Pod.Name == name {
			of = append(of, a)
		}
	}
	if len(of) == 0 {
		return nil, status.Errorf(codes.NotFound,
			"no pod %s/%s is attached on this node; weftctl attachments lists them", namespace, name)
	}
	newest := slices.MaxFunc(of, func(a, b pod.Attachment) int { return a.Created.Compare(b.Created) })
	var found []pod.Interface
	var names []string
	for _, a := range of {
		if a.Key.ContainerID != newest.Key.ContainerID {
			continue
		}
		for _, i := range a.Interfaces {
			if i.Object != "" {
				names = append(names, i.Name)
			}
			if i.Object != "" && (iface == "" || i.Name == iface) {
				found = append(found, i)
			}
		}
	}
	if len(found) == 0 {
		has := cmp.Or(strings.Join(names, ", "), "none in the dataplane")
		return nil, status.Errorf(codes.NotFound, "pod %s/%s has no interface %q; its interfaces: %s", namespace, name,
			iface, has)
	}
	return found, nil
}

// within returns a requested duration, or the default without one.
func within(d *durationpb.Duration, fallback, most time.Duration) (time.Duration, error) {
	if d == nil {
		return fallback, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "duration: %v", err)
	}
	if v := d.AsDuration(); v <= 0 || v > most {
		return 0, status.Errorf(codes.InvalidArgument, "duration %s: must be above 0 and at most %s", v, most)
	}
	return d.AsDuration(), nil
}
