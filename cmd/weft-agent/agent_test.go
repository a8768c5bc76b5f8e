package main

import (
	"context"
	"net"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// fakeAgent is an agent with the attachments of some pods. The only pod "-" makes it not ready.
type fakeAgent struct {
	weftv1.UnimplementedRemoteCNIServer
	operatorv1.UnimplementedOperationsServer
	pods []string
}

func (*fakeAgent) Status(context.Context, *weftv1.StatusRequest) (*weftv1.StatusReply, error) {
	return &weftv1.StatusReply{}, nil
}

func (a *fakeAgent) Attachments(context.Context, *operatorv1.AttachmentsRequest) (*operatorv1.AttachmentsReply, error) {
	reply := &operatorv1.AttachmentsReply{}
	for _, pod := range a.pods {
		namespace, name, _ := strings.Cut(pod, "/")
		reply.Attachments = append(reply.Attachments, &operatorv1.AttachmentInfo{
			Attachment: &weftv1.Attachment{ContainerId: "c0ffee", IfName: "eth0"},
			Pod:        &weftv1.Pod{Namespace: namespace, Name: name},
		})
	}
	return reply, nil
}

func startAgent(ts *testscript.TestScript, _ bool, args []string) {
	listener, err := net.Listen("unix", ts.MkAbs("agent.sock"))
	ts.Check(err)
	server := grpc.NewServer()
	agent := &fakeAgent{pods: args}
	weftv1.RegisterRemoteCNIServer(server, agent)
	operatorv1.RegisterOperationsServer(server, agent)
	checks := health.NewServer()
	if len(args) == 1 && args[0] == "-" {
		checks.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, checks)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // returns after Stop
	}()
	ts.Defer(func() {
		server.Stop()
		<-done
	})
}
