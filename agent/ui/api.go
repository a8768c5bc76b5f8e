package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// maxObjects and maxEvents limit the rows of a reply; the page asks for more with a filter.
const (
	maxObjects = 500
	maxEvents  = 1000
)

// reply writes a document, or the error.
func reply(w http.ResponseWriter, doc any, err error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if err != nil {
		w.WriteHeader(codeOf(err))
		doc = map[string]any{"error": status.Convert(err).Message()}
	}
	_ = json.NewEncoder(w).Encode(doc) // the client may be gone
}

func codeOf(err error) int {
	switch status.Code(err) {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.FailedPrecondition, codes.Unavailable, codes.DeadlineExceeded:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// message writes a message as a document, or the error.
func message(w http.ResponseWriter, m proto.Message, err error) {
	if err != nil {
		reply(w, nil, err)
		return
	}
	reply(w, document.Of(m.ProtoReflect()), nil)
}

func (a *API) state(w http.ResponseWriter, r *http.Request) {
	m, err := a.Operations.State(r.Context(), &operatorv1.StateRequest{})
	message(w, m, err)
}

func (a *API) counters(w http.ResponseWriter, r *http.Request) {
	m, err := a.Operations.Counters(r.Context(), &operatorv1.CountersRequest{})
	message(w, m, err)
}

// objects lists objects without their values. The key or owner of each contains q; it belongs to the pod and has the
// phase if these are given.
func (a *API) objects(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	all, err := a.Operations.Objects(r.Context(), &operatorv1.ObjectsRequest{
		Prefix: query.Get("prefix"),
		Pod:    query.Get("pod"),
	})
	if err != nil {
		reply(w, nil, err)
		return
	}
	phases := map[string]int{}
	found := slices.DeleteFunc(all.Objects, func(o *operatorv1.Object) bool {
		if !isFound(o, strings.ToLower(query.Get("q"))) {
			return true
		}
		phases[o.Phase]++
		return query.Get("phase") != "" && query.Get("phase") != o.Phase
	})
	total := len(found)
	rows := make([]any, 0, min(total, maxObjects))
	for _, o := range found[:min(total, maxObjects)] {
		o.Desired = nil
		o.Applied = nil
		rows = append(rows, document.Of(o.ProtoReflect()))
	}
	reply(w, map[string]any{"objects": rows, "total": total, "phases": phases}, nil)
}

// isFound reports whether the key of an object or the name of an owner contains words in lower case.
func isFound(o *operatorv1.Object, words string) bool {
	if strings.Contains(strings.ToLower(o.Ref), words) {
		return true
	}
	return slices.ContainsFunc(o.Owners, func(owner *operatorv1.ObjectOwner) bool {
		return strings.Contains(strings.ToLower(podName(owner.Pod)+":"+owner.Interface), words)
	})
}

// object returns one object with its values and its explanation.
func (a *API) object(w http.ResponseWriter, r *http.Request) {
	ref := r.URL.Query().Get("ref")
	found, err := a.Operations.Objects(r.Context(), &operatorv1.ObjectsRequest{Prefix: ref})
	if err != nil {
		reply(w, nil, err)
		return
	}
	i := slices.IndexFunc(found.Objects, func(o *operatorv1.Object) bool { return o.Ref == ref })
	if i < 0 {
		reply(w, nil, status.Errorf(codes.NotFound, "no object has the key %q; it may have been deleted", ref))
		return
	}
	why, err := a.Operations.Why(r.Context(), &operatorv1.WhyRequest{Ref: ref})
	if err != nil {
		reply(w, nil, err)
		return
	}
	doc := document.Of(found.Objects[i].ProtoReflect())
	doc["why"] = why.Lines
	reply(w, doc, nil)
}

// number returns a parameter that is a number; it may be absent.
func number(r *http.Request, name string) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, status.Error(codes.InvalidArgument, fmt.Sprintf("parameter %s: %q is not a number", name, text))
	}
	return n, nil
}

func podName(p *weftv1.Pod) string {
	if p.GetName() == "" {
		return ""
	}
	return p.GetNamespace() + "/" + p.GetName()
}
