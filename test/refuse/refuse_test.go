package refuse_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.fd.io/govpp"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.uber.org/goleak"

	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/refuse"
	"github.com/weftnet/weft/vswitch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a connection through a proxy to a real dataplane.
type client struct {
	api.Connection
	t      *testing.T
	socket string
}

func through(t *testing.T) (*refuse.Proxy, *client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "refuse") // short, for the limit of socket paths
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, os.RemoveAll(dir)) })
	target := filepath.Join(dir, "api.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- vswitch.Run(ctx, vswitch.Config{APISocket: target}) }()
	t.Cleanup(func() { cancel(); must.Succeed(t, <-done) })
	p, err := refuse.Listen(filepath.Join(dir, "proxy.sock"), target)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, p.Close()) })
	return p, reach(t, filepath.Join(dir, "proxy.sock"))
}

func reach(t *testing.T, socket string) *client {
	t.Helper()
	return &client{connect(t, socket), t, socket}
}

// connect waits until the dataplane answers.
func connect(t *testing.T, socket string) api.Connection {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		conn, err := govpp.Connect(socket)
		if err == nil {
			t.Cleanup(conn.Disconnect)
			return conn
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// loopback makes an interface, with limit as the timeout.
func (c *client) loopback(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	_, err := interfaces.NewServiceClient(c).CreateLoopback(ctx, &interfaces.CreateLoopback{})
	return err
}

func (c *client) interfaces() int {
	c.t.Helper()
	stream, err := interfaces.NewServiceClient(c).SwInterfaceDump(c.t.Context(),
		&interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	must.Succeed(c.t, err)
	n := 0
	for {
		if _, err := stream.Recv(); err != nil {
			return n
		}
		n++
	}
}

const (
	soon = 300 * time.Millisecond
	long = time.Minute
)

func TestOtherRequestsAreForwarded(t *testing.T) {
	p, c := through(t)
	p.Refuse("delete_loopback", -1, -1)
	before := c.interfaces()
	must.Succeed(t, c.loopback(long))
	if got := c.interfaces(); got != before+1 {
		t.Errorf("%d interfaces, want one more than %d", got, before)
	}
	if asked := p.Asked(); !slices.Contains(asked, "create_loopback") || !slices.Contains(asked, "sw_interface_dump") {
		t.Errorf("asked %v", asked)
	}
	if asked := p.Asked(); len(asked) != 0 {
		t.Errorf("asked since: %v", asked)
	}
}

func TestRefusedRequestIsNotExecutedAndHasItsRetval(t *testing.T) {
	p, c := through(t)
	before := c.interfaces()
	p.Refuse("create_loopback", int32(api.INVALID_ARGUMENT), 2)
	for range 2 {
		if err := c.loopback(long); !errors.Is(err, api.INVALID_ARGUMENT) {
			t.Errorf("error %v", err)
		}
	}
	if got := c.interfaces(); got != before {
		t.Errorf("%d interfaces, want %d", got, before)
	}
	must.Succeed(t, c.loopback(long))
	if hits := p.Allow("create_loopback"); hits != 2 {
		t.Errorf("%d requests were refused, want 2", hits)
	}
}

func TestOnlyTheNthRequestIsRefused(t *testing.T) {
	p, c := through(t)
	p.RefuseNth("create_loopback", int32(api.INVALID_ARGUMENT), 2)
	for i, refused := range []bool{false, true, false} {
		if err := c.loopback(long); errors.Is(err, api.INVALID_ARGUMENT) != refused {
			t.Errorf("request %d: error %v", i+1, err)
		}
	}
}

func TestDumpCannotBeRefused(t *testing.T) {
	p, c := through(t)
	p.Refuse("sw_interface_dump", -1, -1)
	if c.interfaces() == 0 || p.Allow("sw_interface_dump") != 0 {
		t.Error("the dump was refused")
	}
}

func TestHungRequestIsNotExecuted(t *testing.T) {
	p, c := through(t)
	before := c.interfaces()
	p.Hang("create_loopback", 1)
	if err := c.loopback(soon); err == nil {
		t.Error("it was answered")
	}
	must.Succeed(t, p.Met(t.Context(), "create_loopback"))
	if got := c.interfaces(); got != before {
		t.Errorf("%d interfaces, want %d", got, before)
	}
}

func TestRequestWithALostReplyIsExecuted(t *testing.T) {
	p, c := through(t)
	before := c.interfaces()
	p.Lose("create_loopback", 1)
	if err := c.loopback(soon); err == nil {
		t.Error("it was answered")
	}
	if got := c.interfaces(); got != before+1 {
		t.Errorf("%d interfaces, want one more than %d", got, before)
	}
}

func TestMetReturnsAnErrorWithoutARequest(t *testing.T) {
	p, _ := through(t)
	p.Hang("create_loopback", 1)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := p.Met(ctx, "create_loopback"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestNewConnectionsAreServedAfterACut(t *testing.T) {
	p, c := through(t)
	p.Cut()
	if err := c.loopback(soon); err == nil {
		t.Error("the old connection answers")
	}
	must.Succeed(t, reach(t, c.socket).loopback(long))
}

func TestRequestWithTheContentKillsAndIsNotExecuted(t *testing.T) {
	p, c := through(t)
	before := c.interfaces()
	kills := 0
	p.Kill("sw_interface_tag_add_del", "harmful", func() { kills++ })
	tag := func(text string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := interfaces.NewServiceClient(c).SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{
			IsAdd: true,
			Tag:   text,
		})
		return err
	}
	must.Succeed(t, tag("harmless", long))
	if err := tag("a harmful one", soon); err == nil {
		t.Error("the harmful request was answered")
	}
	if hits := p.Allow("sw_interface_tag_add_del"); hits != 1 || kills != 1 || c.interfaces() != before {
		t.Errorf("%d requests met, %d kills", hits, kills)
	}
}
