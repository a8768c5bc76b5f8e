package podmanager

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/internal/unixsocket"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := unixsocket.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// strangerSocket, in the environment, makes the test binary a caller of that socket.
const strangerSocket = "WEFT_TEST_SOCKET"

// strangerUID is the user of that caller.
const strangerUID = 65534

// stranger requests the agent's status and prints the answer.
func stranger(socket string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := askStatus(ctx, socket)
	fmt.Printf("%s: %s\n", status.Code(err), status.Convert(err).Message())
	return 0
}

func askStatus(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = weftv1.NewRemoteCNIClient(conn).Status(ctx, &weftv1.StatusRequest{Caller: caller()})
	return err
}

// serve serves s at a socket with an open file mode, so that only the credentials protect it.
func serve(t *testing.T, s weftv1.RemoteCNIServer, l net.Listener) {
	t.Helper()
	server := grpc.NewServer(ServerOptions()...)
	weftv1.RegisterRemoteCNIServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
}

func TestOnlyRootIsServed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir, err := os.MkdirTemp("/tmp", "weft") // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	serve(t, New(Config{}), listen(t, path))
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := askStatus(t.Context(), path); err != nil {
		t.Errorf("root is rejected: %v", err)
	}
	out := asStranger(t, dir, path)
	if !strings.HasPrefix(out, "PermissionDenied: user 65534 (process ") {
		t.Errorf("a stranger gets %q", out)
	}
}

// asStranger runs a copy of the test binary as another user, which cannot enter the directory of the original.
func asStranger(t *testing.T, dir, socket string) string {
	t.Helper()
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "stranger")
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied)
	cmd.Env = []string{strangerSocket + "=" + socket}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: strangerUID, Gid: strangerUID}}
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("needs a machine where a process can become user %d: %v", strangerUID, err)
	}
	return string(out)
}

// defective panics in every call.
type defective struct {
	weftv1.UnimplementedRemoteCNIServer
}

func (defective) Status(context.Context, *weftv1.StatusRequest) (*weftv1.StatusReply, error) {
	panic("index out of range")
}

func TestPanicOfACallIsReturnedAsItsError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, defective{}, listen(t, path))
	for range 2 { // the server survives a panic
		err := askStatus(t.Context(), path)
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "panic: index out of range") {
			t.Errorf("got %v", err)
		}
	}
}

// TestMain lets the test binary act as a caller other than root.
func TestMain(m *testing.M) {
	if socket := os.Getenv(strangerSocket); socket != "" {
		os.Exit(stranger(socket))
	}
	goleak.VerifyTestMain(m)
}
