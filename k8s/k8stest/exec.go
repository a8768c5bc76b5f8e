package k8stest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Exec is a program that a client runs in a container.
type Exec struct {
	Namespace, Pod, Container string
	Command                   []string
	In                        io.Reader // ends with the client
	Out, Err                  io.Writer
}

// The channels of the protocol v5.channel.k8s.io.
const (
	protocol      = "v5.channel.k8s.io"
	channelIn     = 0
	channelOut    = 1
	channelErr    = 2
	channelStatus = 3
	channelEnd    = 255 // of the channel in the second byte
)

// OnExec makes the subresource exec of pods call run, which returns the exit code of the program. WebSocket is
// served, and after OnlySPDY only SPDY.
func (s *Server) OnExec(run func(Exec) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exec = run
}

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request, t target) {
	s.mu.Lock()
	run := s.exec
	there := s.objects[t.key()] != nil
	onlySPDY := s.onlySPDY
	s.mu.Unlock()
	switch {
	case !there:
		reject(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("pods %q not found", t.name))
		return
	case run != nil && onlySPDY && r.Header.Get("Upgrade") == spdy.HeaderSpdy31:
		query := r.URL.Query()
		s.serveSPDY(w, r, run, Exec{
			Namespace: t.namespace,
			Pod:       t.name,
			Container: query.Get("container"),
			Command:   query["command"],
		})
		return
	case run == nil || onlySPDY || !websocket.IsWebSocketUpgrade(r):
		reject(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "Upgrade request required")
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{protocol}}
	connection, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has replied
	}
	defer connection.Close()
	in, fill := io.Pipe()
	var mu sync.Mutex
	var reading sync.WaitGroup
	reading.Go(func() { receive(connection, fill) })
	query := r.URL.Query()
	code := run(Exec{
		Namespace: t.namespace, Pod: t.name, Container: query.Get("container"), Command: query["command"], In: in,
		Out: channel{connection, &mu, channelOut}, Err: channel{connection, &mu, channelErr},
	})
	_ = in.Close()
	status, _ := json.Marshal(statusOf(code)) // known fields only
	_, _ = channel{connection, &mu, channelStatus}.Write(status)
	_ = connection.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	reading.Wait()
}

// receive fills the standard input of a program until the client closes it.
func receive(connection *websocket.Conn, fill *io.PipeWriter) {
	defer fill.Close()
	for {
		_, message, err := connection.ReadMessage()
		switch {
		case err != nil:
			return
		case len(message) > 1 && message[0] == channelEnd && message[1] == channelIn:
			_ = fill.Close() // never fails
		case len(message) > 1 && message[0] == channelIn:
			_, _ = fill.Write(message[1:]) // the program may have ended
		}
	}
}

// channel is an output of a program.
type channel struct {
	connection *websocket.Conn
	mu         *sync.Mutex
	id         byte
}

// Write sends p as one message.
func (c channel) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.connection.WriteMessage(websocket.BinaryMessage, append([]byte{c.id}, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// statusOf returns the end of a program, as kubelet reports it.
func statusOf(code int) metav1.Status {
	if code == 0 {
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Reason:  "NonZeroExitCode",
		Message: fmt.Sprintf("command terminated with non-zero exit code: %d", code),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: fmt.Sprint(code)}}},
	}
}
