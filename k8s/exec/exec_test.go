package exec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/exec"
	"github.com/weftnet/weft/k8s/k8stest"
)

// container is the container of the tests.
var container = exec.Container{Namespace: "lab", Pod: "p", Name: "c"}

// newServer is an API server with the pod of the tests. Its programs call program.
func newServer(t *testing.T, program func(k8stest.Exec) int) (*k8stest.Server, *client.Client) {
	t.Helper()
	s := k8stest.New(t)
	s.Put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: container.Namespace, Name: container.Pod}})
	s.OnExec(program)
	return s, clientOf(t, s.Connection())
}

func clientOf(t testing.TB, connection *rest.Config) *client.Client {
	t.Helper()
	c, err := client.New(connection)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func run(ctx context.Context, c *client.Client, s exec.Streams, command ...string) error {
	return exec.Run(ctx, c, exec.Program{Container: container, Command: command}, s)
}

// byProtocol runs a test with each protocol.
func byProtocol(t *testing.T, program func(k8stest.Exec) int, test func(*testing.T, *client.Client)) {
	t.Helper()
	for _, protocol := range []string{"WebSocket", "SPDY"} {
		t.Run(protocol, func(t *testing.T) {
			s, c := newServer(t, program)
			want := []string{"GET"}
			if protocol == "SPDY" {
				s.OnlySPDY()
				want = []string{"GET", "POST"} // WebSocket is tried first
			}
			test(t, c)
			var methods []string
			for _, request := range s.Requests() {
				methods = append(methods, strings.Fields(request)[0])
			}
			if !slices.Equal(methods, want) {
				t.Errorf("requests %q, want %q", methods, want)
			}
		})
	}
}

func TestStreamsAndArgumentsPassUnchanged(t *testing.T) {
	binary := bytes.Repeat([]byte("\x00\xff\n\r words\n\n"), 50_000) // more than a window or a frame
	program := func(x k8stest.Exec) int {
		if x.Namespace != "lab" || x.Pod != "p" || x.Container != "c" ||
			!slices.Equal(x.Command, []string{"weftctl", "a b", "", "--x=&?"}) {
			t.Errorf("run in %s/%s/%s: %q", x.Namespace, x.Pod, x.Container, x.Command)
		}
		_, _ = io.WriteString(x.Err, "a complaint\n")
		if _, err := io.Copy(x.Out, x.In); err != nil {
			return 1
		}
		return 0
	}
	byProtocol(t, program, func(t *testing.T, c *client.Client) {
		var out, failures bytes.Buffer
		err := run(t.Context(), c, exec.Streams{In: bytes.NewReader(binary), Out: &out, Err: &failures}, "weftctl",
			"a b", "", "--x=&?")
		if err != nil || !bytes.Equal(out.Bytes(), binary) || failures.String() != "a complaint\n" {
			t.Errorf("%v, %d of %d bytes, %q", err, out.Len(), len(binary), failures.String())
		}
	})
}

func TestExitCodeIsAnError(t *testing.T) {
	for _, code := range []int{1, 2, 137, 255} {
		program := func(x k8stest.Exec) int {
			_, _ = io.WriteString(x.Out, "partial")
			return code
		}
		byProtocol(t, program, func(t *testing.T, c *client.Client) {
			var out bytes.Buffer
			err := run(t.Context(), c, exec.Streams{Out: &out}, "false")
			if exit, ok := errors.AsType[exec.ExitError](err); !ok || exit.Code != code || out.String() != "partial" {
				t.Errorf("error %v, output %q, want exit code %d", err, out.String(), code)
			}
		})
	}
}

// The caller of Run uses its buffers as soon as Run has returned, while the program may still write.
func TestOutputEndsWithTheContext(t *testing.T) {
	var stop context.CancelFunc
	returned := make(chan struct{})
	wrote := make(chan struct{})
	program := func(x k8stest.Exec) int {
		defer close(wrote)
		_, _ = io.WriteString(x.Out, "half a line")
		_, _ = io.Copy(io.Discard, x.In) // ends with the operator
		<-returned
		_, _ = io.WriteString(x.Out, " and more")
		return 0
	}
	byProtocol(t, program, func(t *testing.T, c *client.Client) {
		returned = make(chan struct{})
		wrote = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop = cancel
		hold, end := io.Pipe()
		defer end.Close()
		out := &stopper{text: "half a line", stop: stop}
		err := run(ctx, c, exec.Streams{In: hold, Out: out}, "sleep")
		close(returned)
		if !errors.Is(err, context.Canceled) || errors.As(err, new(exec.ExitError)) ||
			err.Error() != "exec in p/c: context canceled" {
			t.Errorf("error %v", err)
		}
		<-wrote
		if got := out.String(); got != "half a line" {
			t.Errorf("output %q after the end", got)
		}
	})
}

// stopper calls stop when a text has arrived.
type stopper struct {
	mu   sync.Mutex
	b    bytes.Buffer
	text string
	stop func()
}

func (s *stopper) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Write(p)
	if s.b.String() == s.text {
		s.stop()
	}
	return len(p), nil
}

func (s *stopper) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A node that lost its network accepts connections, or its API server does, and never answers.
func TestSilentServerIsBoundedByTheContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	var held net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if held, err = listener.Accept(); err != nil {
			return
		}
		_, _ = held.Read(make([]byte, 1)) // the request is there: the client waits for the answer
		close(accepted)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		<-accepted
		cancel(context.DeadlineExceeded)
	}()
	failure := run(ctx, clientOf(t, &rest.Config{Host: "http://" + listener.Addr().String()}),
		exec.Streams{Out: io.Discard}, "true")
	_ = listener.Close()
	accepting.Wait()
	if held != nil {
		_ = held.Close()
	}
	if failure == nil || !strings.HasPrefix(failure.Error(), "exec in p/c: ") || !errors.Is(failure, context.Canceled) {
		t.Errorf("error %v", failure)
	}
}

// scripted is an API server that sends messages after the upgrade, and closes the connection without any end of its
// own.
func scripted(t testing.TB, messages ...string) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
		connection, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the upgrader has replied
		}
		defer connection.Close()
		for _, m := range messages {
			_ = connection.WriteMessage(websocket.BinaryMessage, []byte(m))
		}
	}))
	t.Cleanup(server.Close)
	return clientOf(t, &rest.Config{Host: server.URL})
}

// A broken connection is neither success nor an exit code: a merged answer would show half an output as the whole.
func TestLostConnectionIsNoSuccess(t *testing.T) {
	for name, messages := range map[string][]string{
		"at once":                nil,
		"after some output":      {"\x01half"},
		"within the status":      {"\x01half", "\x03{\"status\":\"Succ"},
		"with an unknown status": {"\x01half", "\x03{\"status\":\"Maybe\"}"},
		"with an exit code of abc": {
			"\x01half",
			"\x03{\"status\":\"Failure\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"abc\"}]}}",
		},
	} {
		var out bytes.Buffer
		err := run(t.Context(), scripted(t, messages...), exec.Streams{Out: &out}, "true")
		if err == nil || errors.As(err, new(exec.ExitError)) || !strings.HasPrefix(err.Error(), "exec in p/c: ") {
			t.Errorf("%s: error %v", name, err)
		}
		if want := len(messages) > 0; (out.String() == "half") != want {
			t.Errorf("%s: output %q", name, out.String())
		}
	}
}

func TestRefusedProgramIsExplainedInOneLine(t *testing.T) {
	s, c := newServer(t, func(k8stest.Exec) int { return 0 })
	s.Fail(func(*http.Request) int { return http.StatusInternalServerError })
	want := "exec in p/c: unable to upgrade connection: requested by the test"
	if err := run(t.Context(), c, exec.Streams{Out: io.Discard}, "true"); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	s.Fail(nil)
	s.Remove("pods", "lab", "p")
	if err := run(t.Context(), c, exec.Streams{Out: io.Discard}, "true"); err == nil ||
		!strings.Contains(err.Error(), `pods "p" not found`) {
		t.Errorf("error %v", err)
	}
	s.Disconnect()
	if err := run(t.Context(), c, exec.Streams{Out: io.Discard}, "true"); err == nil ||
		strings.Contains(err.Error(), "command=") {
		t.Errorf("error %v", err) // without the long URL
	}
}

// The text is that of an API server with RBAC.
func TestMissingPermissionNamesItsDocument(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,
			"message":"pods \"p\" is forbidden: User \"dev\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"lab\""}`)
	}))
	defer server.Close()
	err := run(t.Context(), clientOf(t, &rest.Config{Host: server.URL}), exec.Streams{Out: io.Discard}, "true")
	if err == nil || !strings.HasSuffix(err.Error(), ` in the namespace "lab" (docs/fleet.md lists the permissions)`) {
		t.Errorf("error %v", err)
	}
}

func TestBoundedOutputIsCutAndSaysSo(t *testing.T) {
	var kept bytes.Buffer
	b := exec.Bounded{To: &kept, Left: 5}
	for _, part := range []string{"abc", "def", "ghi"} {
		if n, err := b.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("wrote %d bytes of %q: %v", n, part, err)
		}
	}
	exact := exec.Bounded{To: io.Discard, Left: 3}
	fmt.Fprint(&exact, "abc")
	if kept.String() != "abcde" || !b.Cut || exact.Cut {
		t.Errorf("kept %q, cut %v; of an output that fits: %v", kept.String(), b.Cut, exact.Cut)
	}
}

// FuzzMessages sends what the end of a connection in a foreign cluster might: Run ends, and only a status of success is
// a success.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		"\x01out\n\x00\x03{\"status\":\"Success\"}", "\x03{\"status\":\"Failure\",\"message\":\"a\\nb\"}", "\x03{}", "",
		"\x00\x00\x00", "\xff\x01\x00\x02err",
		"\x03{\"status\":\"Failure\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"3\"}]}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		messages := strings.SplitN(text, "\x00", 8)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var out bytes.Buffer
		err := run(ctx, scripted(t, messages...), exec.Streams{Out: &out, Err: io.Discard}, "true")
		switch {
		case ctx.Err() != nil:
			t.Errorf("%q has no end", text)
		case err == nil && !strings.Contains(text, "uccess"):
			t.Errorf("%q is a success", text)
		case err != nil && strings.ContainsAny(err.Error(), "\n\r"):
			t.Errorf("%q: the error has several lines: %q", text, err)
		}
	})
}
