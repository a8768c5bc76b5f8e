package ui

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// inSync are the phases of objects that are as they should be.
var inSync = map[string]bool{"InSync": true, "Observed": true}

// pods reads the agent's knowledge of pods.
type pods struct {
	operations operatorv1.OperationsServer
	events     *events
}

// one returns the agent's knowledge of one pod: attachments, objects by phase, objects that are not in sync, and
// events.
func (p *pods) one(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	doc, err := p.read(r, name)
	reply(w, doc, err)
}

func (p *pods) read(r *http.Request, name string) (map[string]any, error) {
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "parameter name: a pod is NAMESPACE/NAME")
	}
	attached, err := p.operations.Attachments(r.Context(), &operatorv1.AttachmentsRequest{Pod: name})
	if err != nil {
		return nil, err
	}
	objects, err := p.operations.Objects(r.Context(), &operatorv1.ObjectsRequest{Pod: name})
	if err != nil {
		return nil, err
	}
	events, err := p.events.of(r, &operatorv1.EventsRequest{Pod: name, Last: maxEvents})
	if err != nil {
		return nil, err
	}
	if len(attached.Attachments)+len(events) == 0 {
		return nil, status.Errorf(codes.NotFound,
			"nothing is known about pod %s: it has no attachment and no recorded event on this node", name)
	}
	phases := map[string]int{}
	unsettled := []any{}
	for _, o := range objects.Objects {
		phases[o.Phase]++
		if !inSync[o.Phase] && len(unsettled) < maxObjects {
			o.Desired = nil
			o.Applied = nil
			unsettled = append(unsettled, document.Of(o.ProtoReflect()))
		}
	}
	doc := document.Of(attached.ProtoReflect())
	doc["phases"] = phases
	doc["notInSync"] = unsettled
	doc["events"] = events
	return doc, nil
}
