package ctl

import (
	"bytes"
	"strings"
	"testing"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// VPP reports a ring of 1 slot and buffers of 0 bytes for each memif of which it is the server.
func TestMemifsOfServersHaveNoSizes(t *testing.T) {
	var out bytes.Buffer
	printMemifs(&printer{out: &out}, &operatorv1.DataplaneMemifs{Memifs: []*operatorv1.DataplaneMemif{
		{Owner: &operatorv1.Owner{Interface: "a"}, Id: 1, Role: "server", RingSize: 1, Socket: "/a"},
		{
			Owner:      &operatorv1.Owner{Interface: "b"},
			Id:         1,
			Role:       "client",
			RingSize:   512,
			BufferSize: 2048,
			Socket:     "/b",
		},
	}})
	for _, want := range []string{"server no - - /a", "client no 512 2048 /b"} {
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
