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

// selected is the selection of a list or a watch.
type selected struct {
	resource, namespace string
	fields              fields.Selector
	labels              labels.Selector
}

func selection(r *http.Request, t target) (selected, error) {
	f, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return selected{}, err
	}
	l, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	return selected{t.resource, t.namespace, f, l}, err
}

func (c selected) has(resource string, o object) bool {
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

func (s *Server) chosenLocked(c selected) []object {
	var chosen []object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[key]; c.has(strings.SplitN(key, "/", 2)[0], o) {
			chosen = append(chosen, o)
		}
	}
	return chosen
}

// shown is an event of a watch.
type shown struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

type watcher struct {
	selected
	partial bool // metadata only
	events  chan shown
}

// sees converts an event: an object that enters or leaves the selection is added or deleted.
func (w *watcher) sees(e event) (shown, bool) {
	is, was := w.has(e.resource, e.object), w.has(e.resource, e.before)
	if !is && !was {
		return shown{}, false
	}
	object := shape(e.object, w.partial)
	switch {
	case e.kind == "MODIFIED" && is && !was:
		return shown{"ADDED", object}, true
	case e.kind == "MODIFIED" && !is && was:
		return shown{"DELETED", object}, true
	}
	return shown{e.kind, object}, is
}

// backlog is the number of events that a watch may be behind.
const backlog = 10000

func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target) {
	chosen, err := selection(r, t)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	watching := &watcher{chosen, wantsMetadata(r), make(chan shown, backlog)}
	if !s.begin(watching, r) {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
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
		for _, o := range s.chosenLocked(w.selected) {
			w.events <- shown{"ADDED", shape(o.DeepCopy(), w.partial)}
		}
	case from < s.oldest:
		return false
	default:
		s.replayLocked(w, from)
	}
	if initial {
		w.events <- shown{"BOOKMARK", s.bookmarkLocked(w)}
	}
	s.watchers[w] = true
	return true
}

func (s *Server) replayLocked(w *watcher, from int) {
	for _, e := range s.history {
		if seen, wanted := w.sees(e); wanted && e.version > from {
			w.events <- seen
		}
	}
}

// bookmarkLocked returns the bookmark after the initial objects of a watch.
func (s *Server) bookmarkLocked(w *watcher) any {
	version, kind := kindOf(w.resource)
	if w.partial {
		version, kind = metadataVersion, metadataKind
	}
	return map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{
		"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
	}}
}
