package vpp

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/codec"
)

func TestListThatIsLongerThanItsMessageIsRefused(t *testing.T) {
	for _, m := range []api.Message{
		&l2.BridgeDomainDetails{BdID: 1, NSwIfs: 2, SwIfDetails: make([]l2.BridgeDomainSwIf, 2)},
		&acl.ACLDetails{ACLIndex: 1, Count: 2, R: make([]acl_types.ACLRule, 2)},
		&acl.MacipACLDetails{ACLIndex: 1, Count: 2, R: make([]acl_types.MacipACLRule, 2)},
		&vlib.ShowThreadsReply{Count: 2, ThreadData: make([]vlib.ThreadData, 2)},
	} {
		t.Run(m.GetMessageName(), func(t *testing.T) {
			data, err := codec.EncodeMsg(m, 7)
			if err != nil {
				t.Fatal(err)
			}
			count := data[lists[m.GetMessageName()].count:]
			if got := binary.BigEndian.Uint32(count); got != 2 {
				t.Fatalf("the length is read as %d: it stands elsewhere", got)
			}
			empty := func() api.Message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(api.Message) }
			if err := decode(data, empty()); err != nil {
				t.Errorf("a good message: %v", err)
			}
			for _, n := range []uint32{3, ^uint32(0)} {
				binary.BigEndian.PutUint32(count, n)
				if err := decode(data, empty()); !errors.Is(err, errList) {
					t.Errorf("with %d items: %v", n, err)
				}
			}
		})
	}
}
