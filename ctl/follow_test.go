package ctl_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// writerFunc is an io.Writer that calls a function.
type writerFunc func(string)

func (w writerFunc) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

func TestFollowEventsSucceedsWhenInterrupted(t *testing.T) {
	replies := ctltest.Sample(now)
	replies.Live = []*operatorv1.EventRecord{{Seq: 3, Event: "something live"}}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	_, stop, err := ctltest.Serve(socket, replies)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	live := false
	out := writerFunc(func(s string) {
		if strings.Contains(s, "something live") {
			live = true
			interrupt()
		}
	})
	if code := ctl.Main(ctx, ctl.Env{Out: out, Err: io.Discard}, []string{
		"events", "-f", "--timeout", "1ns", "--socket", socket,
	}); code != 0 || !live {
		t.Errorf("exit code %d, live event seen: %t", code, live)
	}
}

func TestRequestsHaveTheArguments(t *testing.T) {
	tests := []struct {
		command string
		want    proto.Message
	}{
		{"events --last 7", &operatorv1.EventsRequest{Last: 7}},
		{"events", &operatorv1.EventsRequest{Last: 20}},
		{"transactions", &operatorv1.TransactionsRequest{Last: 20}},
		{"txns 3", &operatorv1.TransactionsRequest{Last: 3}},
		{"objects", &operatorv1.ObjectsRequest{}},
		{"objects vpp.route", &operatorv1.ObjectsRequest{Prefix: "vpp.route"}},
		{"why vpp.vrf/x", &operatorv1.WhyRequest{Ref: "vpp.vrf/x"}},
		{"resync", &operatorv1.ResyncRequest{Kind: "full", Reason: "weftctl"}},
		{"resync upstream", &operatorv1.ResyncRequest{Kind: "upstream", Reason: "weftctl"}},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			_, code, agent := answer(t, ctltest.Sample(now), strings.Fields(tt.command)...)
			if requests := agent.Requests(); code != 0 || len(requests) != 1 || !proto.Equal(requests[0], tt.want) {
				t.Errorf("exit code %d, requests %v, want %v", code, requests, tt.want)
			}
		})
	}
}
