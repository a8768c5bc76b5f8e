package k8stest

import (
	"net/http"
	"strings"
)

// The kind of an object of which a client reads the metadata only.
const (
	metadataVersion = "meta.k8s.io/v1"
	metadataKind    = "PartialObjectMetadata"
)

// wantsMetadata reports whether a client asks for the metadata of objects only.
func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as="+metadataKind)
}

// shape returns an object as a client asks for it: all of it, or a copy with its metadata only.
func shape(o object, partial bool) object {
	if !partial {
		return o
	}
	o = o.DeepCopy()
	o.Object = map[string]any{"apiVersion": metadataVersion, "kind": metadataKind, "metadata": o.Object["metadata"]}
	return o
}
