package k8stest

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// protocolSPDY is the newest protocol of programs in containers that SPDY carries.
const protocolSPDY = "v4.channel.k8s.io"

// OnlySPDY makes the subresource exec refuse WebSocket, like an API server or proxy that does not support it, and serve
// SPDY.
func (s *Server) OnlySPDY() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onlySPDY = true
}

// opened is a stream that a client opened.
type opened struct {
	httpstream.Stream
	replied <-chan struct{} // closed when the client knows that the stream is accepted
}

// serveSPDY runs a program with the streams that the client opens: one for the program's end, and one for each of its
// standard streams.
func (s *Server) serveSPDY(w http.ResponseWriter, r *http.Request, run func(Exec) int, x Exec) {
	if _, err := httpstream.Handshake(r, w, []string{protocolSPDY}); err != nil {
		return // Handshake has replied
	}
	streams := make(chan opened, 4)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
		func(stream httpstream.Stream, replied <-chan struct{}) error {
			streams <- opened{stream, replied}
			return nil
		})
	if connection == nil {
		return // the upgrader has replied
	}
	defer connection.Close()
	byType := map[string]opened{}
	for range streamsOf(r) {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
			<-stream.replied
		case <-connection.CloseChan():
			return
		}
	}
	x.In = byType[corev1.StreamTypeStdin]
	x.Out = byType[corev1.StreamTypeStdout]
	x.Err = byType[corev1.StreamTypeStderr]
	status, _ := json.Marshal(statusOf(run(x))) // known fields only
	_, _ = byType[corev1.StreamTypeError].Write(status)
	for _, stream := range byType {
		_ = stream.Close()
	}
	<-connection.CloseChan() // the client closes it when it has read everything
}

// streamsOf returns the streams that a client announces.
func streamsOf(r *http.Request) (types []string) {
	types = []string{corev1.StreamTypeError}
	for _, name := range []string{corev1.StreamTypeStdin, corev1.StreamTypeStdout, corev1.StreamTypeStderr} {
		if r.URL.Query().Get(name) == "true" {
			types = append(types, name)
		}
	}
	return types
}
