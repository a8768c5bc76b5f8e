package podmanager

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Limits of a call: callers are trusted but may have bugs.
const (
	maxRequest        = 1 << 20 // all annotations of a pod are 256 KiB at most
	maxStreams        = 1024    // of one connection
	connectionTimeout = 5 * time.Second
)

// ServerOptions returns the options of the agent's server: it rejects peers other than root and the agent's own user,
// and survives a panic of a call.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(peerCredentials{}),
		grpc.ChainUnaryInterceptor(guardUnary),
		grpc.ChainStreamInterceptor(guardStream),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectionTimeout),
	}
}

// peerCredentials reads the credentials of a unix socket's peer from the kernel.
type peerCredentials struct{}

// process is the peer at the time of its connect.
type process struct {
	credentials.CommonAuthInfo
	uid uint32
	pid int32
}

// AuthType names the authentication method.
func (process) AuthType() string { return "SO_PEERCRED" }

// ServerHandshake reads the peer's credentials. Each call checks them, so that the peer gets a clear error.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("peer credentials of a %T: only unix sockets have them", conn)
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || credErr != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", cmp.Or(err, credErr))
	}
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return conn, process{level, cred.Uid, cred.Pid}, nil
}

// ClientHandshake has no effect: the socket's path identifies the server.
func (peerCredentials) ClientHandshake(
	_ context.Context, _ string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return conn, process{}, nil
}

// Info names the protocol.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

// Clone returns the credentials.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName has no effect.
func (peerCredentials) OverrideServerName(string) error { return nil }

func guardUnary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (reply any, err error) {
	if err := authorize(ctx); err != nil {
		return nil, err
	}
	defer recovered(&err)
	return handle(ctx, req)
}

func guardStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	if err := authorize(stream.Context()); err != nil {
		return err
	}
	defer recovered(&err)
	return handle(srv, stream)
}

// authorize accepts root and the agent's own user.
func authorize(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.PermissionDenied, "unknown caller")
	}
	caller, ok := p.AuthInfo.(process)
	if !ok || caller.uid != 0 && int(caller.uid) != os.Geteuid() {
		return status.Errorf(codes.PermissionDenied,
			"user %d (process %d) may not use the agent's socket: only root may", caller.uid, caller.pid)
	}
	return nil
}

// recovered turns a panic into the call's error; the stack goes to the caller, who is root.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = status.Errorf(codes.Internal, "agent: panic: %v\n%s", v, debug.Stack())
	}
}
