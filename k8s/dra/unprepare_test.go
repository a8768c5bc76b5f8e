package dra

import (
	"errors"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

func unprepareOf(claims ...string) *drapb.NodeUnprepareResourcesRequest {
	r := &drapb.NodeUnprepareResourcesRequest{}
	for _, name := range claims {
		r.Claims = append(r.Claims, prepareOf(name).GetClaims()...)
	}
	return r
}

// Kubelet repeats the release of a claim that an attachment still uses. Until then the claim is prepared and has its
// files; the other claims of the request are released.
func TestClaimThatIsInUseIsReleasedLater(t *testing.T) {
	n := newNode(t, claimOf("used", "", "memif-100"), claimOf("free", "", "memif-101"))
	helper, err := n.start(t.Context()) // without collections, which may prepare a claim again
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(helper.Stop)
	n.metadata.serve(helper)
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	for _, name := range []string{"used", "free"} {
		if reply, err := kubelet.NodePrepareResources(t.Context(), prepareOf(name)); err != nil ||
			reply.GetClaims()["uid-"+name].GetError() != "" {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	n.Observe(attachmentOf("usedmemif-100"))
	n.memifs.use("uid-used", errors.New("an attachment of pod shop/a still uses it"))
	number := n.preparations.lastOf("uid-used")
	reply, err := kubelet.NodeUnprepareResources(t.Context(), unprepareOf("used", "free", "unknown"))
	if err != nil || !strings.Contains(reply.GetClaims()["uid-used"].GetError(), "still uses it") {
		t.Errorf("used: %v, %v", reply, err)
	}
	for _, name := range []string{"free", "unknown"} {
		if answer, is := reply.GetClaims()["uid-"+name]; !is || answer.GetError() != "" {
			t.Errorf("%s: %v", name, answer)
		}
	}
	if left := n.memifs.Claims(); len(left) != 1 || left[0].Name != "used" {
		t.Errorf("prepared are %v", left)
	}
	if _, found := n.mounted(t, "uid-used", "m"); found.Requests[0].Devices[0].NetworkData == nil ||
		n.preparations.lastOf("uid-used") != number || number == 0 {
		t.Errorf("the refused release forgets the claim: %+v", found.Requests[0].Devices[0])
	}
	n.memifs.use("uid-used", nil)
	if reply, err := kubelet.NodeUnprepareResources(t.Context(), unprepareOf("used")); err != nil ||
		reply.GetClaims()["uid-used"].GetError() != "" {
		t.Errorf("later: %v, %v", reply, err)
	}
	if left := n.memifs.Claims(); len(left)+len(n.metadataFilesLeft(t)) > 0 || n.preparations.lastOf("uid-used") != 0 {
		t.Errorf("left: %v, %q", left, n.metadataFilesLeft(t))
	}
}

// Kubelet gives UID and name of a released claim, which the API server may not have any more.
func TestClaimIsReleasedWithoutTheAPIServer(t *testing.T) {
	n := newNode(t, claimOf("c", "", "memif-100"))
	n.run(t)
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	if reply, err := kubelet.NodePrepareResources(t.Context(), prepareOf("c")); err != nil ||
		reply.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
	n.failing("get", errors.New("connection refused"))
	if reply, err := kubelet.NodeUnprepareResources(t.Context(), unprepareOf("c")); err != nil ||
		reply.GetClaims()["uid-c"].GetError() != "" || len(n.memifs.Claims()) > 0 {
		t.Errorf("%v, %v: left %v", reply, err, n.memifs.Claims())
	}
}

// Kubelet repeats a preparation. The driver does not guess what a claim is that it cannot read.
func TestNoClaimIsPreparedThatTheAPIServerDoesNotShow(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		uid  string
		want string
	}{
		"no connection": {errors.New("connection refused"), "uid-c", "connection refused"},
		"not permitted": {apierrors.NewForbidden(resourceClaims, "c", errors.New("no role")), "uid-c", "no role"},
		"deleted":       {apierrors.NewNotFound(resourceClaims, "c"), "uid-c", "not found"},
		"another one's": {nil, "uid of its predecessor", "got replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, claimOf("c", "", "memif-100"))
			n.run(t)
			kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
			if tt.err != nil {
				n.failing("get", tt.err)
			}
			request := prepareOf("c")
			request.Claims[0].Uid = tt.uid
			if reply, err := kubelet.NodePrepareResources(t.Context(), request); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v", reply, err)
			}
			if left := n.memifs.Claims(); len(left)+len(n.metadataFilesLeft(t)) > 0 {
				t.Errorf("prepared: %v, %q", left, n.metadataFilesLeft(t))
			}
		})
	}
}

// A claim that an attachment uses stays, also when the API server has it no longer. Its files stay with it.
func TestDeletedClaimInUseIsNotCollected(t *testing.T) {
	n, id := claimed(t)
	n.failing("get", apierrors.NewNotFound(resourceClaims, "c"))
	n.memifs.use(id.UID, errors.New("an attachment of pod shop/a still uses it"))
	n.Observe(attachmentOf("cmemif-100"))
	directory, cdi := n.metadata.files(id)
	if err := errors.Join(os.MkdirAll(directory, 0o700), os.MkdirAll(n.config.CDIDir, 0o700),
		os.WriteFile(cdi+"m.json", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if n.collector.collect(t.Context()); len(n.memifs.Claims()) != 1 || len(n.metadata.interfaces) != 1 ||
		len(n.metadataFilesLeft(t)) != 2 {
		t.Errorf("left %v, files %q, interfaces %v", n.memifs.Claims(), n.metadataFilesLeft(t), n.metadata.interfaces)
	}
	n.memifs.use(id.UID, nil)
	n.collector.collect(t.Context())
	if len(n.memifs.Claims())+len(n.metadata.interfaces)+len(n.metadataFilesLeft(t)) > 0 {
		t.Errorf("left %v, files %q, interfaces %v", n.memifs.Claims(), n.metadataFilesLeft(t), n.metadata.interfaces)
	}
}
