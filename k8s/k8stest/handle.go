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
	numbers "k8s.io/apimachinery/pkg/util/json" // integers stay integers
)

func uid(version int) types.UID { return types.UID(fmt.Sprintf("uid-%d", version)) }

// target is the object or collection of a request.
type target struct {
	resource, namespace, name, subresource string
}

// parse reads /api/v1/... and /apis/<group>/<version>/...; the resource of a group is named <resource>.<group>.
func parse(path string) target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	rest := parts[2:]
	if parts[0] == "apis" {
		group = "." + parts[1]
		rest = parts[3:]
	}
	var t target
	if len(rest) > 2 && rest[0] == "namespaces" {
		t.namespace = rest[1]
		rest = rest[2:]
	}
	rest = append(rest, "", "")
	t.resource = rest[0] + group
	t.name = rest[1]
	t.subresource = rest[2]
	return t
}

func (t target) key() string { return strings.Join([]string{t.resource, t.namespace, t.name}, "/") }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	t := parse(r.URL.Path)
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	unreachable := s.unreachable
	fail := s.fail
	missing := slices.Contains(s.missing, t.resource)
	s.mu.Unlock()
	if unreachable {
		closeConnection(w)
		return
	}
	if fail != nil {
		if code := fail(r); code != 0 {
			reject(w, code, "InternalError", "requested by the test")
			return
		}
	}
	switch {
	case missing:
		reject(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case t.subresource == "exec":
		s.serveExec(w, r, t)
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, t)
	case r.Method == http.MethodGet && t.name == "":
		s.list(w, r, t)
	default:
		s.one(w, r, t)
	}
}

// closeConnection closes the connection without a response.
func closeConnection(w http.ResponseWriter) {
	if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = connection.Close()
	}
}

func reject(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	respond(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: text,
	})
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) {
	selected, err := parseSelection(r, t)
	if err != nil {
		reject(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	partial := wantsMetadata(r)
	for _, o := range s.selectedLocked(selected) {
		items = append(items, shape(o, partial).Object)
	}
	version, kind := kindOf(t.resource)
	if partial {
		version = metadataVersion
		kind = metadataKind
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(items) {
		meta["remainingItemCount"] = len(items) - limit
		meta["continue"] = "more" // no test reads the next page
		items = items[:limit]
	}
	respond(w, http.StatusOK, map[string]any{
		"kind":       kind + "List",
		"apiVersion": version,
		"metadata":   meta,
		"items":      items,
	})
}

// one serves a request for one object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, t target) {
	var body unstructured.Unstructured
	if r.Method != http.MethodGet {
		raw, err := io.ReadAll(r.Body)
		if err == nil {
			err = numbers.Unmarshal(raw, &body.Object)
		}
		if err != nil {
			reject(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		t.name = body.GetName()
	}
	existing := s.objects[t.key()]
	if code, reason := rejection(r.Method, existing, &body); code != 0 {
		reject(w, code, reason, fmt.Sprintf("%s %q: %s", t.resource, t.name, reason))
		return
	}
	switch r.Method {
	case http.MethodPost:
		body.SetUID("")
		body.SetNamespace(t.namespace)
		respond(w, http.StatusCreated, s.writeLocked(t.resource, &body))
	case http.MethodPut:
		respond(w, http.StatusOK, s.writeLocked(t.resource, merged(t, existing, &body)))
	case http.MethodPatch:
		respond(w, http.StatusOK, s.writeLocked(t.resource, patched(existing, &body)))
	case http.MethodDelete:
		s.removeLocked(t.resource, t.key())
		respond(w, http.StatusOK, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusSuccess,
		})
	default:
		respond(w, http.StatusOK, existing)
	}
}

// rejection returns the status of a request that fails, else 0.
func rejection(method string, existing, body object) (int, metav1.StatusReason) {
	wantUID := string(body.GetUID())
	wantVersion := body.GetResourceVersion()
	if method == http.MethodDelete {
		wantUID, _, _ = unstructured.NestedString(body.Object, "preconditions", "uid")
		wantVersion, _, _ = unstructured.NestedString(body.Object, "preconditions", "resourceVersion")
	}
	switch {
	case method == http.MethodPost && existing != nil:
		return http.StatusConflict, metav1.StatusReasonAlreadyExists
	case method == http.MethodPost:
		return 0, ""
	case existing == nil:
		return http.StatusNotFound, metav1.StatusReasonNotFound
	case method == http.MethodGet:
		return 0, ""
	case wantUID != "" && wantUID != string(existing.GetUID()),
		wantVersion != "" && wantVersion != existing.GetResourceVersion():
		return http.StatusConflict, metav1.StatusReasonConflict
	}
	return 0, ""
}

// patched applies a merge patch (RFC 7396).
func patched(existing, patch object) object {
	to := existing.DeepCopy()
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

// merged returns the written object: the subresource changes the status only, and the annotations of a pod, other
// writes change the rest.
func merged(t target, existing, body object) object {
	from := body
	to := existing.DeepCopy()
	if t.subresource == "status" {
		to.Object["status"] = from.Object["status"]
		if t.resource == "pods" {
			to.SetAnnotations(from.GetAnnotations())
		}
		return to
	}
	result := from.DeepCopy()
	result.SetUID(existing.GetUID())
	result.SetNamespace(t.namespace)
	delete(result.Object, "status")
	if status, has := existing.Object["status"]; has {
		result.Object["status"] = status
	}
	return result
}

// The kind of an object with metadata only.
const (
	metadataVersion = "meta.k8s.io/v1"
	metadataKind    = "PartialObjectMetadata"
)

// wantsMetadata reports whether a client reads metadata only.
func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as="+metadataKind)
}

// shape returns an object, or a copy with its metadata only.
func shape(o object, partial bool) object {
	if !partial {
		return o
	}
	o = o.DeepCopy()
	o.Object = map[string]any{"apiVersion": metadataVersion, "kind": metadataKind, "metadata": o.Object["metadata"]}
	return o
}

// kindOf returns the version and the kind of a resource's objects.
func kindOf(resource string) (version, kind string) {
	name, group, custom := strings.Cut(resource, ".")
	kinds := map[string]string{
		"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "customnetworks": "CustomNetwork",
		"ippools":  "IPPool",
		"ipblocks": "IPBlock", "nodenetworks": "NodeNetwork", "externalinterfaces": "ExternalInterface",
		"podinterfaces": "PodInterfaces", "weftconfigs": "WeftConfig",
		"network-attachment-definitions": "NetworkAttachmentDefinition",
		"configmaps":                     "ConfigMap", "events": "Event", "leases": "Lease", "services": "Service",
		"endpointslices": "EndpointSlice",
		"servicecidrs":   "ServiceCIDR", "networkpolicies": "NetworkPolicy",
		"multi-networkpolicies": "MultiNetworkPolicy", "ipamclaims": "IPAMClaim",
		"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice",
		"adminnetworkpolicies": "AdminNetworkPolicy", "baselineadminnetworkpolicies": "BaselineAdminNetworkPolicy",
	}
	switch name {
	case "multi-networkpolicies":
		return group + "/v1beta1", kinds[name]
	case "adminnetworkpolicies", "baselineadminnetworkpolicies", "ipamclaims":
		return group + "/v1alpha1", kinds[name]
	}
	if !custom {
		return "v1", kinds[name]
	}
	return group + "/v1", kinds[name]
}
