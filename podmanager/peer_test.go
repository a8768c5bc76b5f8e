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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// strangerSocket, in the environment, makes the test binary a caller of that socket.
const strangerSocket = "WEFT_TEST_SOCKET"

// nobody is the user that the caller is then.
const nobody = 65534

// stranger asks for the agent's status and prints what it got.
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

// serve serves s at a socket whose file anybody may connect to, so that only the credentials keep strangers out.
func serve(t *testing.T, s weftv1.RemoteCNIServer, l net.Listener) {
	t.Helper()
	server := grpc.NewServer(ServerOptions()...)
	weftv1.RegisterRemoteCNIServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
}

// rows: AWS-27
func TestOnlyRootIsServed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir, err := os.MkdirTemp("/tmp", "weft") // t.TempDir is closed to others
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
		t.Errorf("root is refused: %v", err)
	}
	out := asNobody(t, dir, path)
	if !strings.HasPrefix(out, "PermissionDenied: user 65534 (process ") {
		t.Errorf("a stranger gets %q", out)
	}
}

// asNobody runs a copy of the test binary as another user, who could not enter the directory of the original.
func asNobody(t *testing.T, dir, socket string) string {
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("needs a machine where a process can become user %d: %v", nobody, err)
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

// rows: CAL-27
func TestThePanicOfACallIsItsError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, defective{}, listen(t, path))
	for range 2 { // the server outlives it
		err := askStatus(t.Context(), path)
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "panic: index out of range") {
			t.Errorf("got %v", err)
		}
	}
}
