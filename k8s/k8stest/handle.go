package k8stest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	numbers "k8s.io/apimachinery/pkg/util/json" // whole ones stay whole
)

func uid(version int) types.UID { return types.UID(fmt.Sprintf("uid-%d", version)) }

// target is what a request is about.
type target struct {
	resource, namespace, name, subresource string
}

// parse reads /api/v1/... and /apis/<group>/<version>/...; the resource of a group is named <resource>.<group>.
func parse(path string) target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group, rest := "", parts[2:]
	if parts[0] == "apis" {
		group, rest = "."+parts[1], parts[3:]
	}
	var t target
	if len(rest) > 2 && rest[0] == "namespaces" {
		t.namespace, rest = rest[1], rest[2:]
	}
	rest = append(rest, "", "")
	t.resource, t.name, t.subresource = rest[0]+group, rest[1], rest[2]
	return t
}

func (t target) key() string { return strings.Join([]string{t.resource, t.namespace, t.name}, "/") }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	t := parse(r.URL.Path)
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	away, fail, missing := s.away, s.fail, slices.Contains(s.missing, t.resource)
	s.mu.Unlock()
	if away {
		cut(w)
		return
	}
	if fail != nil {
		if code := fail(r); code != 0 {
			refuse(w, code, "InternalError", "so it was asked for")
			return
		}
	}
	switch {
	case missing:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, t)
	case r.Method == http.MethodGet && t.name == "":
		s.list(w, r, t)
	default:
		s.one(w, r, t)
	}
}

// cut ends the connection without an answer.
func cut(w http.ResponseWriter) {
	if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = connection.Close() // no process listens
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: text,
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone away
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) {
	chosen, err := selection(r, t)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items, partial := []any{}, wantsMetadata(r)
	for _, o := range s.chosenLocked(chosen) {
		items = append(items, shape(o, partial).Object)
	}
	version, kind := kindOf(t.resource)
	if partial {
		version, kind = metadataVersion, metadataKind
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(items) {
		meta["remainingItemCount"], meta["continue"] = len(items)-limit, "more" // no test reads on
		items = items[:limit]
	}
	answer(w, http.StatusOK, map[string]any{"kind": kind + "List", "apiVersion": version, "metadata": meta, "items": items})
}

// one does what a request wants of one object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, t target) {
	var body unstructured.Unstructured
	if r.Method != http.MethodGet {
		raw, err := io.ReadAll(r.Body)
		if err == nil {
			err = numbers.Unmarshal(raw, &body.Object)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		t.name = body.GetName()
	}
	there := s.objects[t.key()]
	if code, reason := verdict(r.Method, there, &body); code != 0 {
		refuse(w, code, reason, fmt.Sprintf("%s %q: %s", t.resource, t.name, reason))
		return
	}
	switch r.Method {
	case http.MethodPost:
		body.SetUID("")
		body.SetNamespace(t.namespace)
		answer(w, http.StatusCreated, s.writeLocked(t.resource, &body))
	case http.MethodPut:
		answer(w, http.StatusOK, s.writeLocked(t.resource, merged(t, there, &body)))
	case http.MethodPatch:
		answer(w, http.StatusOK, s.writeLocked(t.resource, patched(there, &body)))
	case http.MethodDelete:
		s.removeLocked(t.resource, t.key())
		answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	default:
		answer(w, http.StatusOK, there)
	}
}

// verdict says why a request cannot be served; 0: it can.
func verdict(method string, there, body object) (int, metav1.StatusReason) {
	wantUID, wantVersion := string(body.GetUID()), body.GetResourceVersion()
	if method == http.MethodDelete {
		wantUID, _, _ = unstructured.NestedString(body.Object, "preconditions", "uid")
		wantVersion, _, _ = unstructured.NestedString(body.Object, "preconditions", "resourceVersion")
	}
	switch {
	case method == http.MethodPost && there != nil:
		return http.StatusConflict, metav1.StatusReasonAlreadyExists
	case method == http.MethodPost:
		return 0, ""
	case there == nil:
		return http.StatusNotFound, metav1.StatusReasonNotFound
	case method == http.MethodGet:
		return 0, ""
	case wantUID != "" && wantUID != string(there.GetUID()), wantVersion != "" && wantVersion != there.GetResourceVersion():
		return http.StatusConflict, metav1.StatusReasonConflict
	}
	return 0, ""
}

// patched is an object with the fields of a merge patch (RFC 7396).
func patched(there, patch object) object {
	to := there.DeepCopy()
	mergeFields(to.Object, patch.Object)
	return to
}

func mergeFields(to, from map[string]any) {
	for key, value := range from {
		fields, are := value.(map[string]any)
		into, had := to[key].(map[string]any)
		switch {
		case value == nil:
			delete(to, key)
		case are && had:
			mergeFields(into, fields)
		default:
			to[key] = value
		}
	}
}

// merged is the object that a write leaves: the status changes with the subresource only, all else only without it.
func merged(t target, there, body object) object {
	from, to := body, there.DeepCopy()
	if t.subresource == "status" {
		to.Object["status"] = from.Object["status"]
		return to
	}
	result := from.DeepCopy()
	result.SetUID(there.GetUID())
	result.SetNamespace(t.namespace)
	delete(result.Object, "status")
	if status, has := there.Object["status"]; has {
		result.Object["status"] = status
	}
	return result
}
