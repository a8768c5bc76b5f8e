package k8stest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection are the selectors of a list or a watch.
type selection struct {
	resource, namespace string
	fields              fields.Selector
	labels              labels.Selector
}

func parseSelection(r *http.Request, t target) (selection, error) {
	f, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return selection{}, err
	}
	l, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	return selection{t.resource, t.namespace, f, l}, err
}

func (c selection) has(resource string, o object) bool {
	if o == nil || c.resource != resource || c.namespace != "" && c.namespace != o.GetNamespace() {
		return false
	}
	set := fields.Set{}
	for _, r := range c.fields.Requirements() {
		value, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(r.Field, ".")...)
		if set[r.Field] = ""; value != nil {
			set[r.Field] = fmt.Sprint(value)
		}
	}
	return c.fields.Matches(set) && c.labels.Matches(labels.Set(o.GetLabels()))
}

func (s *Server) selectedLocked(c selection) []object {
	var matching []object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[key]; c.has(strings.SplitN(key, "/", 2)[0], o) {
			matching = append(matching, o)
		}
	}
	return matching
}

// watchEvent is an event of a watch.
type watchEvent struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

type watcher struct {
	selection
	partial bool // metadata only
	events  chan watchEvent
}

// convert converts an event: an object that enters or leaves the selection is added or deleted.
func (w *watcher) convert(e event) (watchEvent, bool) {
	is := w.has(e.resource, e.object)
	was := w.has(e.resource, e.before)
	if !is && !was {
		return watchEvent{}, false
	}
	object := shape(e.object, w.partial)
	switch {
	case e.kind == "MODIFIED" && is && !was:
		return watchEvent{"ADDED", object}, true
	case e.kind == "MODIFIED" && !is && was:
		return watchEvent{"DELETED", object}, true
	}
	return watchEvent{e.kind, object}, is
}

// backlog is the capacity of the queue of a watch.
const backlog = 10000

func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target) {
	matching, err := parseSelection(r, t)
	if err != nil {
		reject(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	watching := &watcher{matching, wantsMetadata(r), make(chan watchEvent, backlog)}
	if !s.begin(watching, r) {
		reject(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, watching)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case e, open := <-watching.events:
			if !open || json.NewEncoder(w).Encode(e) != nil {
				return
			}
		}
	}
}

// begin queues the events since the version of the watch, or all objects, and registers the watch.
func (s *Server) begin(w *watcher, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	switch {
	case initial || from == 0:
		for _, o := range s.selectedLocked(w.selection) {
			w.events <- watchEvent{"ADDED", shape(o.DeepCopy(), w.partial)}
		}
	case from < s.oldest:
		return false
	default:
		s.replayLocked(w, from)
	}
	if initial {
		w.events <- watchEvent{"BOOKMARK", s.bookmarkLocked(w)}
	}
	s.watchers[w] = true
	return true
}

func (s *Server) replayLocked(w *watcher, from int) {
	for _, e := range s.history {
		if seen, wanted := w.convert(e); wanted && e.version > from {
			w.events <- seen
		}
	}
}

// bookmarkLocked returns the bookmark after the initial objects of a watch.
func (s *Server) bookmarkLocked(w *watcher) any {
	version, kind := kindOf(w.resource)
	if w.partial {
		version = metadataVersion
		kind = metadataKind
	}
	return map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{
		"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{
			metav1.InitialEventsAnnotationKey: "true",
		},
	}}
}
