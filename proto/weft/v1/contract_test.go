package weftv1_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// contract returns the service that the plugin calls.
func contract(t *testing.T) protoreflect.ServiceDescriptor {
	t.Helper()
	service := weftv1.File_weft_v1_cni_proto.Services().ByName("RemoteCNI")
	if service == nil {
		t.Fatal("no service RemoteCNI")
	}
	return service
}

// Each request has the caller's protocol in its first field. Find and Address belong to ADD: Find returns its result,
// and Address is its second half for an IPAM plugin that needs the interface first.
func TestRemoteCNIHasTheCNIVerbs(t *testing.T) {
	service := contract(t)
	var verbs []string
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		verbs = append(verbs, string(method.Name()))
		caller := method.Input().Fields().ByName("caller")
		if caller == nil || caller.Number() != 1 || caller.Message().Fields().ByName("protocol") == nil {
			t.Errorf("the first field of %s has no protocol", method.Input().Name())
		}
	}
	slices.Sort(verbs)
	if want := []string{"Add", "Address", "Check", "Collect", "Delete", "Find", "Status"}; !slices.Equal(verbs, want) {
		t.Errorf("verbs %v, want %v", verbs, want)
	}
	if got, want := string(service.ParentFile().Package()), fmt.Sprintf("weft.v%d", weftv1.Protocol); got != want {
		t.Errorf("package %s, want %s", got, want)
	}
}

// Each message is decoded with an unknown field.
func TestFieldsOfLaterReleasesAreIgnored(t *testing.T) {
	const later = 999
	service := contract(t)
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		for _, message := range []protoreflect.MessageDescriptor{method.Input(), method.Output()} {
			first := message.Fields().Get(0) // a message in all of them
			sent := dynamicpb.NewMessage(message)
			sent.Mutable(first)
			raw, err := proto.Marshal(sent)
			if err != nil {
				t.Fatal(err)
			}
			raw = protowire.AppendString(protowire.AppendTag(raw, later, protowire.BytesType), "news")
			read := dynamicpb.NewMessage(message)
			if err := proto.Unmarshal(raw, read); err != nil || !read.Has(first) {
				t.Errorf("%s with a field of a later release: %v", message.Name(), err)
			}
		}
	}
}
