// Package ui serves the operator's page of the agent: its files, and the JSON and event streams that the page reads.
package ui

import (
	"embed"
	"io/fs"
	"net/http"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

//go:embed page
var page embed.FS

// policy is the Content-Security-Policy: the page loads only its own files, and scripts can neither create code from
// strings nor markup from strings.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// API answers the page's requests from the agent's state.
type API struct {
	Operations operatorv1.OperationsServer
	Stopping   <-chan struct{} // closed when the agent stops
}

// Handler returns the handler of the page and of its API. It accepts only GET, and has no side effects.
func Handler(api *API) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) //nolint:forbidigo // impossible: the path is constant and embedded
	}
	events := &events{operations: api.Operations, stopping: api.Stopping}
	pods := &pods{operations: api.Operations, events: events}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/state", api.state)
	mux.HandleFunc("GET /api/topology", api.topology)
	mux.HandleFunc("GET /api/counters", api.counters)
	mux.HandleFunc("GET /api/addresses", api.addresses)
	mux.HandleFunc("GET /api/objects", api.objects)
	mux.HandleFunc("GET /api/object", api.object)
	mux.HandleFunc("GET /api/pod", pods.one)
	mux.HandleFunc("GET /api/events", events.list)
	mux.HandleFunc("GET /api/event", events.one)
	mux.HandleFunc("GET /api/stream", events.stream)
	mux.Handle("GET /", http.FileServerFS(files))
	return headers(mux)
}

// headers sets the headers of all replies, and rejects all methods except GET.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet {
			h.Set("Allow", http.MethodGet)
			http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
